interface Choice {
  id: string;
  name: string;
}

/** The id of a choice that a spec gives by id or by a name that no other choice has; otherwise what it gives. */
export function choiceId(choices: readonly Choice[], given: string): string {
  if (choices.some(({ id }) => id === given)) return given;
  const [named, other] = choices.filter(({ name }) => name === given);
  return named === undefined || other !== undefined ? given : named.id;
}
