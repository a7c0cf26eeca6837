/**
 * Learns the optional request fields that a replica rejects, and omits them from its requests. A
 * field is learned when the request without it has succeeded, for an hour. It is learned for the
 * caller of that request only: an engine may repeat a value in its error, so that the text of one
 * caller could omit a field of all others.
 */
import { type Clock, HOUR_MS } from '../core/clock.ts';
import type { EngineFailure, Replica } from './contract.ts';
import { replicaKey } from './learned-replicas.ts';

/** The oldest are dropped; a dropped one is learned again. */
const MAX_FIELDS = 10_000;
const UNKNOWN =
  /unknown|unrecogni[sz]ed|unsupported|unexpected|extra|additional|(?:not|n't) (?:support|permitted|allowed|recogni[sz]ed)/i;

/** The place in the text of a rejection that rejects the field; negative if none does. */
export type Rejects = (text: string) => number;

export function rejectsAsUnknown(field: string): Rejects {
  const isWord = (character = ''): boolean => /\w/.test(character);
  return (text) => {
    let at = text.indexOf(field);
    while (at >= 0 && (isWord(text[at - 1]) || isWord(text[at + field.length]))) {
      at = text.indexOf(field, at + 1);
    }
    return at >= 0 && UNKNOWN.test(text) ? at : -1;
  };
}

export class LearnedFields {
  readonly #clock: Clock;
  /** Monotonic time of the expiry, oldest first. */
  readonly #known = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  has(key: string): boolean {
    return (this.#known.get(key) ?? 0) > this.#clock.monotonicMs();
  }

  add(key: string): void {
    this.#known.delete(key);
    this.#known.set(key, this.#clock.monotonicMs() + HOUR_MS);
    const [oldest = ''] = this.#known.keys();
    if (this.#known.size > MAX_FIELDS) this.#known.delete(oldest);
  }
}

/** The omitted fields of one call; each replica may reject each optional field once. */
export class OmittedFields {
  readonly #learned: LearnedFields;
  readonly #caller: string;
  readonly #optional: ReadonlyMap<string, Rejects>;
  readonly #omitted: { readonly replica: Replica; readonly field: string }[] = [];

  /** `caller` is an account id. */
  constructor(
    learned: LearnedFields,
    caller: string,
    optional: Iterable<readonly [string, Rejects]>,
  ) {
    this.#learned = learned;
    this.#caller = caller;
    this.#optional = new Map(optional);
  }

  has(replica: Replica, field: string): boolean {
    return (
      this.#learned.has(this.#keyOf(replica, field)) ||
      this.#omitted.some((one) => one.replica === replica && one.field === field)
    );
  }

  /**
   * Omits the field that a replica has rejected, the first one in its text, which may list others
   * after it; `false` if it rejects no optional one.
   */
  add(replica: Replica, { status, body }: EngineFailure): boolean {
    if (status !== 400 && status !== 422) return false;
    const text = String(body ?? '');
    let first: { readonly field: string; readonly at: number } | undefined;
    for (const [field, rejects] of this.#optional) {
      const at = rejects(text);
      if (at < 0 || at >= (first?.at ?? Infinity) || this.has(replica, field)) continue;
      first = { field, at };
    }
    if (first === undefined) return false;
    this.#omitted.push({ replica, field: first.field });
    return true;
  }

  /** Remembers the omitted fields of a replica that has accepted the request. */
  learn(replica: Replica): void {
    for (const one of this.#omitted)
      if (one.replica === replica) this.#learned.add(this.#keyOf(replica, one.field));
  }

  #keyOf(replica: Replica, field: string): string {
    return `${this.#caller} ${replicaKey(replica)} ${field}`;
  }
}
