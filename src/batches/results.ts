/** Lines of the two result files of a batch, in the format of OpenAI. */
import type { FinishedResponse } from '../billing/idempotency/idempotency.ts';

/** A larger response is not stored; the error file reports it. */
export const MAX_RESPONSE_BYTES = 16_777_216;

export interface LineError {
  readonly code: string;
  readonly message: string;
}

export const LINE_ERRORS = {
  expired: {
    code: 'batch_expired',
    message: 'The batch expired before this request could run; it was not charged',
  },
  cancelled: {
    code: 'batch_cancelled',
    message: 'The batch was cancelled before this request ran; it was not charged',
  },
  storageFull: {
    code: 'storage_full',
    message:
      'Your files and results use all of your storage; delete some and run this request again',
  },
  tooLarge: {
    code: 'answer_too_large',
    message: `The response exceeds the limit of ${MAX_RESPONSE_BYTES} bytes and is not stored; it was charged`,
  },
} as const satisfies Readonly<Record<string, LineError>>;

export function responseLine(
  id: string,
  customId: string,
  response: { readonly status: number; readonly requestId: string; readonly body: Buffer },
): Buffer {
  const head = { status_code: response.status, request_id: response.requestId };
  return Buffer.concat([
    Buffer.from(
      `{"id":${JSON.stringify(id)},"custom_id":${JSON.stringify(customId)},"response":${JSON.stringify(head).slice(0, -1)},"body":`,
    ),
    onOneLine(response.body),
    Buffer.from('},"error":null}\n'),
  ]);
}

export function errorLine(id: string, customId: string, error: LineError): Buffer {
  const line = { id, custom_id: customId, response: null, error };
  return Buffer.from(`${JSON.stringify(line)}\n`);
}

/** The line of a response that its sale stores; `undefined` if it is too large. */
export function storedLine(
  id: string,
  customId: string,
  stored: FinishedResponse,
): Buffer | undefined {
  const { status, headers, body } = stored;
  if (body === undefined || body.length > MAX_RESPONSE_BYTES) return undefined;
  return responseLine(id, customId, { status, requestId: headers['x-request-id'] ?? '', body });
}

const NEWLINE = 0x0a;
const RETURN = 0x0d;
const SPACE = 0x20;

/** Replaces line ends, which in JSON are only between tokens, by spaces. */
function onOneLine(json: Buffer): Buffer {
  if (!json.includes(NEWLINE) && !json.includes(RETURN)) return json;
  return Buffer.from(json.map((byte) => (byte === NEWLINE || byte === RETURN ? SPACE : byte)));
}
