/** Messages of the PostgreSQL protocol, version 3. */

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

/** Returns a function that takes the bytes of a connection, and passes each whole message on. */
export function messagesOf(
  isFromServer: boolean,
  received: (message: Message) => void,
): (bytes: Buffer) => void {
  let rest: Buffer = Buffer.alloc(0);
  let head = isFromServer ? 1 : 0;
  return (bytes) => {
    rest = rest.length === 0 ? bytes : Buffer.concat([rest, bytes]);
    while (rest.length >= head + LENGTH_BYTES) {
      const end = head + rest.readUInt32BE(head);
      if (rest.length < end) return;
      const whole = rest.subarray(0, end);
      rest = rest.subarray(end);
      const type = whole.toString('latin1', 0, head);
      received({ type, body: whole.subarray(head + LENGTH_BYTES), whole });
      head = 1;
    }
  };
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

/** The body of the first message of a client, with further settings; the last value of each counts. */
export function startupWith(body: Buffer, settings: Readonly<Record<string, string>>): Buffer {
  const texts = Object.entries(settings).flat();
  return messageOf('', body.subarray(0, -1), `${texts.join('\0')}\0\0`);
}

/** A setting of the first message of a client that is a number, by default 0. */
export function numberIn(body: Buffer, setting: string): number {
  return Number(body.toString('latin1').split(`\0${setting}\0`)[1]?.split('\0')[0] ?? 0);
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
