/** What logs and metrics say about nodes and facilitators, whose URLs often carry an access key. */
import type { Log } from '../core/log.ts';

const MAX_CHARS = 200;

/** The message of an error as one short sentence without URLs. */
export function chainReason(error: unknown): string {
  return messageOf(error)
    .replace(/\b(?:https?|wss?):\/\/\S+/gi, '<url>')
    .slice(0, MAX_CHARS);
}

function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // The short message of viem has no request details.
  const short: unknown = 'shortMessage' in error ? error.shortMessage : undefined;
  return typeof short === 'string' ? short : error.message;
}

/** Logs and counts, by network, how often the nodes of a chain contradict each other. */
export class Contradictions {
  readonly counts: Map<string, number>;
  readonly #log: Log;

  /** The networks are counted from zero, so that the first contradiction is a change. */
  constructor(log: Log, networks: readonly string[]) {
    this.#log = log;
    this.counts = new Map(networks.map((network) => [network, 0]));
  }

  note(network: string, subject: string): void {
    this.counts.set(network, (this.counts.get(network) ?? 0) + 1);
    this.#log.warn({ network }, `The nodes contradict each other about ${subject}`);
  }
}
