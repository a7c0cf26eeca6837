/**
 * Logs and counts unhandled rejections, which do not end the process: code that awaits the result has its
 * own error or timeout.
 *
 * An uncaught exception ends the process immediately, because it can leave memory inconsistent. The disk is
 * consistent: holds of a dead process are released, and the next start completes journaled settles and
 * payments.
 */
import type { EventEmitter } from 'node:events';
import { type Clock, MINUTE_MS } from '../core/clock.ts';
import type { Log } from '../core/log.ts';

export interface RejectionFigures {
  readonly count: number;
}

/** The process, or a replacement in tests. */
type RejectionSource = Pick<EventEmitter, 'on'> & { exit(code: number): void };

/** Limits the log if a library fails on every request. */
const MAX_LINES_PER_MINUTE = 20;
const UNCAUGHT_EXIT_CODE = 1;

export function countRejections(source: RejectionSource, log: Log, clock: Clock): RejectionFigures {
  const figures = { count: 0 };
  let minuteStartMs = -Infinity;
  let lines = 0;
  source.on('unhandledRejection', (reason: unknown) => {
    figures.count += 1;
    const nowMs = clock.monotonicMs();
    if (nowMs - minuteStartMs >= MINUTE_MS) {
      minuteStartMs = nowMs;
      lines = 0;
    }
    lines += 1;
    if (lines > MAX_LINES_PER_MINUTE) return;
    const fields = { stack: safeStack(reason), count: figures.count };
    log.error(fields, 'Unhandled promise rejection; the process continues');
  });
  source.on('uncaughtException', (error: unknown) => {
    log.error({ stack: safeStack(error) }, 'An uncaught exception ends this process');
    source.exit(UNCAUGHT_EXIT_CODE);
  });
  return figures;
}

const MAX_MESSAGE_CHARS = 200;
/** A longer word can be a key or a signature. */
const MIN_SECRET_CHARS = 24;
const MAX_FRAMES = 30;
const MAX_CAUSES = 3;

/** Returns the stack of an error without URLs, credentials and long words in its messages. */
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
    .replaceAll(/\b\w+:\/\/\S+/g, '<url>')
    .replaceAll(/\b(?:[Bb]earer|[Bb]asic)\s\S+/g, '<credential>')
    .replaceAll(/[\w+/=-]+/g, (word) => (word.length < MIN_SECRET_CHARS ? word : '<redacted>'))
    .slice(0, MAX_MESSAGE_CHARS);
}
