/**
 * What the code of others leaves behind. A promise that fails with nobody there to hear it would end
 * the process, and with it the answers of everybody else; here it is logged, counted, and the
 * process goes on: what awaited its result has had its own error or its own time limit.
 *
 * An uncaught exception is different. It has cut a synchronous piece of work in two, so what is in
 * memory may be half changed, and nothing of it can be trusted with money. It is logged and the
 * process ends at once. What is on disk is whole: holds of a dead process are given back, journaled
 * settles and payments are finished by the next start.
 */
import type { EventEmitter } from 'node:events';
import { type Clock, MINUTE_MS } from '../core/clock.ts';
import type { Log } from '../core/log.ts';

export interface RejectionFigures {
  readonly count: number;
}

/** What this listens on: the process, or what a test has in its place. */
type RejectionSource = Pick<EventEmitter, 'on' | 'off'> & { exit(code: number): void };

/** A library that fails on every request must not fill the disk. */
const MAX_LINES_PER_MINUTE = 20;
const UNCAUGHT_EXIT_CODE = 1;

export class UnhandledRejections implements RejectionFigures {
  readonly #log: Log;
  readonly #clock: Clock;
  #count = 0;
  #minuteStartMs = -Infinity;
  #lines = 0;

  constructor(log: Log, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  get count(): number {
    return this.#count;
  }

  /** Listens until the returned function is called. */
  listen(source: RejectionSource): () => void {
    const rejected = (reason: unknown): void => this.#note(reason);
    const thrown = (error: unknown): void => {
      this.#log.error({ stack: safeStack(error) }, 'An uncaught exception ends this process');
      source.exit(UNCAUGHT_EXIT_CODE);
    };
    source.on('unhandledRejection', rejected);
    source.on('uncaughtException', thrown);
    return () => {
      source.off('unhandledRejection', rejected);
      source.off('uncaughtException', thrown);
    };
  }

  #note(reason: unknown): void {
    this.#count += 1;
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#minuteStartMs >= MINUTE_MS) {
      this.#minuteStartMs = nowMs;
      this.#lines = 0;
    }
    this.#lines += 1;
    if (this.#lines > MAX_LINES_PER_MINUTE) return;
    const fields = { stack: safeStack(reason), count: this.#count };
    this.#log.error(fields, 'A promise failed with nobody there to hear it; the process goes on');
  }
}

const MAX_MESSAGE_CHARS = 200;
const MAX_FRAMES = 30;
const MAX_CAUSES = 3;

/**
 * The stack of anything thrown, without what its messages may carry: of each only the first line,
 * and in it no address (access keys of nodes), no credential and no long word (keys, signatures).
 */
export function safeStack(error: unknown): string {
  const parts: string[] = [];
  let cause: unknown = error;
  while (parts.length <= MAX_CAUSES && cause !== undefined && cause !== null) {
    parts.push(describe(cause));
    cause = cause instanceof Error ? cause.cause : undefined;
  }
  return parts.join('\ncaused by ');
}

function describe(error: unknown): string {
  if (typeof error === 'string') return `string: ${withoutSecrets(error)}`;
  if (!(error instanceof Error)) return typeof error;
  const frames = (error.stack ?? '').split('\n').filter((line) => /^\s+at /.test(line));
  const head = `${error.name}: ${withoutSecrets(error.message)}`;
  return [head, ...frames.slice(0, MAX_FRAMES)].join('\n');
}

function withoutSecrets(message: string): string {
  const [line = ''] = message.split('\n', 1);
  return line
    .slice(0, 4 * MAX_MESSAGE_CHARS)
    .replaceAll(/\b[a-z][a-z0-9+.-]*:\/\/\S+/gi, '<url>')
    .replaceAll(/\b(?:Bearer|Basic)\s+\S+/gi, '<credential>')
    .replaceAll(/[A-Za-z0-9+/_=-]{24,}/g, '<redacted>')
    .slice(0, MAX_MESSAGE_CHARS);
}
