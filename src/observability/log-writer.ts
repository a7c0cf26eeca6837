/**
 * The log of a running server: one JSON object per line, or readable lines on a terminal. Secrets
 * are never passed to it; as a second safeguard, fields with names of secrets are redacted. Control
 * characters in logged text are escaped, so lines are safe for a terminal.
 */
import { type Clock, SECOND_MS, isoTime } from '../core/clock.ts';
import type { Log, LogFields } from '../core/log.ts';

const LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const;
type Level = (typeof LEVELS)[number];

export interface LogWriterOptions {
  readonly level: Level;
  readonly pretty: boolean;
  readonly clock: Clock;
  readonly write: (text: string) => void;
}

/** Control characters except the line end, and bidirectional text marks. */
const UNSAFE =
  // oxlint-disable-next-line no-control-regex -- these are what it is about
  /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/;
const EACH_UNSAFE = new RegExp(UNSAFE, 'g');

/** Escapes unsafe characters as `\\u001b`, which keeps JSON text valid. */
export function printable(text: string): string {
  // Few lines have any, and the test allocates nothing.
  if (!UNSAFE.test(text)) return text;
  return text.replaceAll(
    EACH_UNSAFE,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** A log whose level can change. */
export interface LeveledLog extends Log {
  setLevel(level: Level): void;
}

const HIDDEN = new Set(['apiKey', 'secret', 'authorization', 'password']);

export function logWriter({ level, pretty, clock, write }: LogWriterOptions): LeveledLog {
  // Many lines share a second.
  let second = -1;
  let beginning = '';
  const at = (level: Level, least: Level) => {
    if (LEVELS.indexOf(level) < LEVELS.indexOf(least)) return () => undefined;
    return (fields: LogFields, msg: string): void => {
      const nowMs = clock.nowMs();
      const nowSecond = Math.floor(nowMs / SECOND_MS);
      if (nowSecond !== second) {
        second = nowSecond;
        beginning = isoTime(second * SECOND_MS).slice(0, -'000Z'.length);
      }
      const time = `${beginning}${String(nowMs - second * SECOND_MS).padStart(3, '0')}Z`;
      const shown = censored(fields);
      if (pretty) return write(printable(prettyLine({ ...shown, level, time, msg })));
      // V8 copies all fields at once if they are first in the new object.
      const rest = textOf({ ...shown, msg }).slice(1);
      write(`{"level":"${level}","time":"${time}",${printable(rest)}\n`);
    };
  };
  const from = (least: Level) => ({
    debug: at('debug', least),
    info: at('info', least),
    warn: at('warn', least),
    error: at('error', least),
  });
  const log = {
    ...from(level),
    setLevel: (least: Level) => void Object.assign(log, from(least)),
  };
  return log;
}

/** Returns the fields with secrets redacted, at the top and one level below. */
function censored(fields: LogFields, depth = 0): LogFields {
  let shown = fields;
  for (const name in fields) {
    const value = fields[name];
    if (HIDDEN.has(name)) shown = { ...shown, [name]: '[hidden]' };
    else if (depth === 0 && typeof value === 'object' && value !== null && !Array.isArray(value)) {
      shown = { ...shown, [name]: censored(value as LogFields, 1) }; // any object has named fields
    }
  }
  return shown;
}

function textOf(value: unknown): string {
  try {
    return JSON.stringify(value);
  } catch {
    // `JSON.stringify` throws on bigint, such as an amount of money.
    return JSON.stringify(value, (_name, part) => (typeof part === 'bigint' ? String(part) : part));
  }
}

/** `12:00:01 info  Request POST /chat/completions 200 …` */
function prettyLine({ level, time, msg, ...fields }: LogFields): string {
  const clock = String(time).slice(11, 19);
  const rest = Object.entries(fields)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name}=${typeof value === 'string' ? value : textOf(value)}`)
    .join(' ');
  const said = `${String(msg)}${rest === '' ? '' : `  ${rest}`}`;
  // Marks continuation lines and escapes control characters, so that logged text cannot imitate a
  // log line or control the terminal.
  const shown = said.replaceAll(CONTROLS, shownControl).replaceAll('\n', CONTINUED);
  return `${clock} ${String(level).padEnd(5)} ${shown}\n`;
}

const CONTROLS = /[\p{Cc}\u2028\u2029]/gu;

function shownControl(control: string): string {
  return control === '\n' ? control : `\\u${control.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

const CONTINUED = `\n${' '.repeat('12:00:01 '.length)}| `;
