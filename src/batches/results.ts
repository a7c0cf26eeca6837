/** The lines of a batch's two result files, in OpenAI's form. */
import type { FinishedResponse } from '../billing/idempotency/idempotency.ts';

/** A larger response is not kept; the error file says so. */
export const MAX_ANSWER_BYTES = 16_777_216;

export interface LineError {
  readonly code: string;
  readonly message: string;
}

export const LINE_ERRORS = {
  expired: {
    code: 'batch_expired',
    message: 'The batch was over before this request could run; nothing was charged',
  },
  cancelled: {
    code: 'batch_cancelled',
    message: 'The batch was cancelled before this request ran; nothing was charged',
  },
  noRoom: {
    code: 'storage_full',
    message:
      'Your files and results take all the room that you have; delete some and run this request again',
  },
  tooLarge: {
    code: 'answer_too_large',
    message: `The answer has more than ${MAX_ANSWER_BYTES} bytes, which is more than a result file takes; it was charged`,
  },
} as const satisfies Readonly<Record<string, LineError>>;

export function answeredLine(
  id: string,
  customId: string,
  answer: { readonly status: number; readonly requestId: string; readonly body: Buffer },
): Buffer {
  const head = { status_code: answer.status, request_id: answer.requestId };
  return Buffer.concat([
    Buffer.from(
      `{"id":${JSON.stringify(id)},"custom_id":${JSON.stringify(customId)},"response":${JSON.stringify(head).slice(0, -1)},"body":`,
    ),
    onOneLine(answer.body),
    Buffer.from('},"error":null}\n'),
  ]);
}

export function unansweredLine(id: string, customId: string, error: LineError): Buffer {
  const line = { id, custom_id: customId, response: null, error };
  return Buffer.from(`${JSON.stringify(line)}\n`);
}

/** The line of an answer as its sale keeps it. */
export function keptLine(id: string, customId: string, kept: FinishedResponse): Buffer | undefined {
  const { status, headers, body } = kept;
  if (body === undefined || body.length > MAX_ANSWER_BYTES) return undefined;
  return answeredLine(id, customId, { status, requestId: headers['x-request-id'] ?? '', body });
}

const NEWLINE = 0x0a;
const RETURN = 0x0d;
const SPACE = 0x20;

/** Between the tokens of JSON a space is as good as the end of a line; inside them there is none. */
function onOneLine(json: Buffer): Buffer {
  if (!json.includes(NEWLINE) && !json.includes(RETURN)) return json;
  return Buffer.from(json.map((byte) => (byte === NEWLINE || byte === RETURN ? SPACE : byte)));
}
