/** Id of a field's control, so that an error at the top can lead to it. */
export function fieldId(path: string): string {
  return `field-${path.replaceAll(".", "-")}`;
}
