/** Messages of the PostgreSQL protocol, version 3. */

const VERSION_3 = 196_608;
const LENGTH_BYTES = 4;
/** Members of an error that do not depend on process ids: severity, code and message. */
const STABLE_MEMBERS = new Set(['S', 'V', 'C', 'M']);
const COLUMN_BYTES = 18;

export interface Message {
  /** A letter; empty for the first message of a client. */
  readonly type: string;
  readonly body: Buffer;
  readonly whole: Buffer;
}

/** Splits bytes into messages. */
export class Messages {
  #rest: Buffer = Buffer.alloc(0);
  #hasType: boolean;

  constructor(isFromServer = false) {
    this.#hasType = isFromServer;
  }

  *of(bytes: Buffer): Generator<Message> {
    this.#rest = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    for (;;) {
      const head = this.#hasType ? 1 : 0;
      if (this.#rest.length < head + LENGTH_BYTES) return;
      const end = head + this.#rest.readUInt32BE(head);
      if (this.#rest.length < end) return;
      const whole = this.#rest.subarray(0, end);
      this.#rest = this.#rest.subarray(end);
      const type = whole.toString('latin1', 0, head);
      this.#hasType = true;
      yield { type, body: whole.subarray(head + LENGTH_BYTES), whole };
    }
  }
}

export function messageOf(type: string, ...parts: readonly (string | Buffer)[]): Buffer {
  const body = Buffer.concat(parts.map((part) => Buffer.from(part)));
  const head = Buffer.alloc(type.length + LENGTH_BYTES);
  head.write(type, 'latin1');
  head.writeUInt32BE(body.length + LENGTH_BYTES, type.length);
  return Buffer.concat([head, body]);
}

/** The first two texts of a message. */
export function textsOf(body: Buffer): string[] {
  const first = body.indexOf(0);
  const second = body.indexOf(0, first + 1);
  return [body.toString('utf8', 0, first), body.toString('utf8', first + 1, Math.max(0, second))];
}

/** Settings of the first message of a client. */
export function startupOf(body: Buffer): Record<string, string> {
  const texts = body.toString('utf8', LENGTH_BYTES).split('\0');
  const settings: Record<string, string> = {};
  for (let at = 0; at + 1 < texts.length; at += 2) {
    if (texts[at] !== '') settings[texts[at]!] = texts[at + 1]!;
  }
  return settings;
}

/** The first message of a client. */
export function startupWith(settings: Readonly<Record<string, string>>): Buffer {
  const version = Buffer.alloc(LENGTH_BYTES);
  version.writeUInt32BE(VERSION_3);
  return messageOf('', version, `${Object.entries(settings).flat().join('\0')}\0\0`);
}

export function errorOf(severity: 'ERROR' | 'FATAL', code: string, text: string): Buffer {
  return messageOf('E', `S${severity}\0V${severity}\0C${code}\0M${text}\0\0`);
}

/** The message without numbers that differ between runs: ids of processes and tables. */
export function withoutNumbers({ type, body, whole }: Message): Buffer {
  if (type === 'K' || type === 'A') {
    const changed = Buffer.from(whole);
    changed.fill(0, 1 + LENGTH_BYTES, type === 'K' ? changed.length : 1 + 2 * LENGTH_BYTES);
    return changed;
  }
  if (type === 'E' || type === 'N') {
    const members = body.toString('utf8').split('\0');
    const stable = members.filter((member) => STABLE_MEMBERS.has(member[0] ?? ''));
    return messageOf(type, stable.map((member) => `${member}\0`).join(''), '\0');
  }
  if (type !== 'T') return whole;
  const changed = Buffer.from(body);
  for (let at = 2; at < changed.length;) {
    const name = changed.indexOf(0, at);
    changed.fill(0, name + 1, name + 1 + LENGTH_BYTES);
    at = name + 1 + COLUMN_BYTES;
  }
  return messageOf(type, changed);
}
