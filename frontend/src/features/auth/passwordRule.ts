const MIN_PASSWORD_LENGTH = 10;

export const PASSWORD_HELP = `At least ${MIN_PASSWORD_LENGTH} characters.`;

/** What is wrong with a new password, as far as the browser can tell. */
export function passwordMistake(password: string): string | undefined {
  return password.length < MIN_PASSWORD_LENGTH ? `Enter at least ${MIN_PASSWORD_LENGTH} characters.` : undefined;
}
