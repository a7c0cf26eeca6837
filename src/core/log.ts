/**
 * The log as the rest of the code sees it: structured and leveled. A command hands in the one that
 * writes; tests hand in `silentLog` or `memoryLog`. Secrets, prompts and payment payloads are never
 * passed to it.
 */

export type LogFields = Readonly<Record<string, unknown>>;

export interface Log {
  debug(fields: LogFields, message: string): void;
  info(fields: LogFields, message: string): void;
  warn(fields: LogFields, message: string): void;
  error(fields: LogFields, message: string): void;
}

export const silentLog: Log = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
};

export interface LogLine {
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  readonly message: string;
  readonly fields: LogFields;
}

/** Keeps every line in `lines`, for tests that must see what was logged. */
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

/** The message of anything thrown, for logs. */
export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
