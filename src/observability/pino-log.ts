/**
 * The log of a running server: pino, one JSON object a line, or readable lines on a terminal.
 * Nothing secret is ever passed to it; the redaction is the second lock on that door.
 */
import { type DestinationStream, type Logger, pino } from 'pino';
import type { Log, LogFields } from '../core/log.ts';

export interface PinoLogOptions {
  readonly level: 'debug' | 'info' | 'warn' | 'error' | 'silent';
  readonly pretty: boolean;
  readonly write: (text: string) => void;
}

const HIDDEN = new Set(['apiKey', 'secret', 'authorization', 'password']);

export function pinoLog(options: PinoLogOptions): Log {
  const stream: DestinationStream = {
    write: options.pretty ? (line) => options.write(prettyLine(line)) : options.write,
  };
  return wrap(
    pino(
      {
        level: options.level,
        base: null,
        timestamp: pino.stdTimeFunctions.isoTime,
        formatters: { level: (level) => ({ level }) },
      },
      stream,
    ),
  );
}

function wrap(logger: Logger): Log {
  return {
    debug: (fields, message) => logger.debug(censored(fields), message),
    info: (fields, message) => logger.info(censored(fields), message),
    warn: (fields, message) => logger.warn(censored(fields), message),
    error: (fields, message) => logger.error(censored(fields), message),
    child: (fields: LogFields) => wrap(logger.child(censored(fields))),
  };
}

/**
 * The fields without what must not be read, at the top and one level below. pino's own redaction
 * copies every line; this one copies only a line that has something to hide.
 */
function censored(fields: LogFields, depth = 0): LogFields {
  let shown = fields;
  for (const name in fields) {
    const value = fields[name];
    const kept = HIDDEN.has(name) ? '[hidden]' : depth === 0 ? censoredInside(value) : value;
    if (kept !== value) shown = { ...shown, [name]: kept };
  }
  return shown;
}

function censoredInside(value: unknown): unknown {
  const isPlain = typeof value === 'object' && value !== null && !Array.isArray(value);
  return isPlain ? censored(value as LogFields, 1) : value; // any object has named fields
}

/** `12:00:01 info  Request POST /chat/completions 200 …` */
function prettyLine(line: string): string {
  const { level, time, msg, ...fields } = JSON.parse(line) as Record<string, unknown>; // pino's own
  const clock = String(time).slice(11, 19);
  const rest = Object.entries(fields)
    .map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(' ');
  const said = `${String(msg)}${rest === '' ? '' : `  ${rest}`}`;
  // What goes on after a line end is seen to go on: a text of others cannot pass for a line of ours.
  return `${clock} ${String(level).padEnd(5)} ${said.replaceAll('\n', CONTINUED)}\n`;
}

const CONTINUED = `\n${' '.repeat('12:00:01 '.length)}| `;
