/** One line of `farebox check`. */
export interface Finding {
  readonly what: string;
  /** `note` is worth knowing and not wrong. */
  readonly state: 'ok' | 'note' | 'wrong';
  readonly says: string;
}
