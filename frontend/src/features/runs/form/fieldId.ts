/** Id of a field's control, for links from the list of problems. */
export function fieldId(path: string): string {
  return `field-${path.replaceAll(".", "-")}`;
}
