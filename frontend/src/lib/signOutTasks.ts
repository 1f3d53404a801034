/** What must happen in this tab before its user signs out. Code that was never loaded has nothing to do then. */
const tasks = new Set<() => void>();

/** Calls `task` before each sign-out. */
export function beforeSignOut(task: () => void): void {
  tasks.add(task);
}

export function runSignOutTasks(): void {
  for (const task of tasks) task();
}
