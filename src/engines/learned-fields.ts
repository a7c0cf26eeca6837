/**
 * Learns the optional request fields that a replica rejects, and omits them from its requests. A
 * field is learned when the request without it has succeeded.
 */
import type { EngineFailure, Replica } from './contract.ts';
import { replicaKey } from './learned-replicas.ts';

/** More than any server has; a dropped one is learned again. */
const MAX_FIELDS = 10_000;
const UNKNOWN =
  /unknown|unrecogni[sz]ed|unsupported|unexpected|extra|additional|(?:not|n't) (?:support|permitted|allowed|recogni[sz]ed)/i;

/** Whether the text of a rejection rejects the field. */
export type Rejects = (text: string) => boolean;

export function rejectsAsUnknown(field: string): Rejects {
  return (text) => UNKNOWN.test(text) && text.split(/\W/).includes(field);
}

export class LearnedFields {
  readonly #known = new Set<string>();

  has(replica: Replica, field: string): boolean {
    return this.#known.has(`${replicaKey(replica)} ${field}`);
  }

  add(replica: Replica, field: string): void {
    if (this.#known.size < MAX_FIELDS) this.#known.add(`${replicaKey(replica)} ${field}`);
  }
}

/** The omitted fields of one call; each replica may reject each optional field once. */
export class OmittedFields {
  readonly #learned: LearnedFields;
  readonly #optional: ReadonlyMap<string, Rejects>;
  readonly #omitted: { readonly replica: Replica; readonly field: string }[] = [];

  constructor(learned: LearnedFields, optional: Iterable<readonly [string, Rejects]>) {
    this.#learned = learned;
    this.#optional = new Map(optional);
  }

  has(replica: Replica, field: string): boolean {
    return (
      this.#learned.has(replica, field) ||
      this.#omitted.some((one) => one.replica === replica && one.field === field)
    );
  }

  /** Omits the field that a replica has rejected; `false` if it rejects no optional one. */
  add(replica: Replica, { status, body }: EngineFailure): boolean {
    if (status !== 400 && status !== 422) return false;
    const text = String(body ?? '');
    for (const [field, rejects] of this.#optional) {
      if (this.has(replica, field) || !rejects(text)) continue;
      this.#omitted.push({ replica, field });
      return true;
    }
    return false;
  }

  /** Remembers the omitted fields of a replica that has accepted the request. */
  learn(replica: Replica): void {
    for (const one of this.#omitted)
      if (one.replica === replica) this.#learned.add(replica, one.field);
  }
}
