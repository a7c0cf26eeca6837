/**
 * The log of a running server: pino, one JSON object a line, or readable lines on a terminal.
 * Nothing secret is ever passed to it; the redaction is the second lock on that door.
 */
import { type DestinationStream, type Logger, pino } from 'pino';
import type { Log, LogFields } from '../kernel/log.ts';

export interface PinoLogOptions {
  readonly level: 'debug' | 'info' | 'warn' | 'error' | 'silent';
  readonly pretty: boolean;
  readonly write: (text: string) => void;
}

const REDACTED = ['apiKey', 'secret', 'authorization', 'password', '*.apiKey', '*.secret'];

export function pinoLog(options: PinoLogOptions): Log {
  const stream: DestinationStream = {
    write: options.pretty ? (line) => options.write(prettyLine(line)) : options.write,
  };
  return wrap(
    pino(
      {
        level: options.level,
        base: null,
        redact: { paths: REDACTED, censor: '[hidden]' },
        timestamp: pino.stdTimeFunctions.isoTime,
        formatters: { level: (level) => ({ level }) },
      },
      stream,
    ),
  );
}

function wrap(logger: Logger): Log {
  return {
    debug: (fields, message) => logger.debug(fields, message),
    info: (fields, message) => logger.info(fields, message),
    warn: (fields, message) => logger.warn(fields, message),
    error: (fields, message) => logger.error(fields, message),
    child: (fields: LogFields) => wrap(logger.child(fields)),
  };
}

/** `12:00:01 info  Request POST /chat/completions 200 …` */
function prettyLine(line: string): string {
  const { level, time, msg, ...fields } = JSON.parse(line) as Record<string, unknown>; // pino's own
  const clock = String(time).slice(11, 19);
  const rest = Object.entries(fields)
    .map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(' ');
  return `${clock} ${String(level).padEnd(5)} ${String(msg)}${rest === '' ? '' : `  ${rest}`}\n`;
}
