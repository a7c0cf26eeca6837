/** A log that keeps its lines, for tests that must see what was logged. */
import type { Log, LogFields } from '../../src/core/log.ts';

export interface LogLine {
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  readonly message: string;
  readonly fields: LogFields;
}

/** Stores every line in `lines`. */
export function memoryLog(lines: LogLine[]): Log {
  const keep =
    (level: LogLine['level']) =>
    (fields: LogFields, message: string): void => {
      lines.push({ level, message, fields });
    };
  return {
    debug: keep('debug'),
    info: keep('info'),
    warn: keep('warn'),
    error: keep('error'),
  };
}
