/** Error texts and counts of nodes and facilitators, without their URLs, which often have an access key. */
import type { Log } from '../core/log.ts';

const MAX_CHARS = 200;

export function chainReason(error: unknown): string {
  return messageOf(error)
    .replace(/\b(?:https?|wss?):\/\/\S+/gi, '<url>')
    .slice(0, MAX_CHARS);
}

function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const short: unknown = 'shortMessage' in error ? error.shortMessage : undefined;
  return typeof short === 'string' ? short : error.message;
}

export class Contradictions {
  readonly counts: Map<string, number>;
  readonly #log: Log;

  /** The counts start at zero, so that metrics show the first contradiction as a change. */
  constructor(log: Log, networks: readonly string[]) {
    this.#log = log;
    this.counts = new Map(networks.map((network) => [network, 0]));
  }

  note(network: string, subject: string): void {
    this.counts.set(network, (this.counts.get(network) ?? 0) + 1);
    this.#log.warn({ network }, `The nodes contradict each other about ${subject}`);
  }
}
