/**
 * The refusals of the llama child, in the shape that OpenAI clients parse. Used inside the child
 * only: the gateway turns what it receives into its own faults.
 */

export type RefusalCode =
  | 'invalid_request'
  | 'invalid_api_key'
  | 'context_length_exceeded'
  | 'model_not_found'
  | 'not_found'
  | 'payload_too_large'
  | 'overloaded'
  | 'internal_error';

const STATUS: Readonly<Record<RefusalCode, number>> = {
  invalid_request: 400,
  invalid_api_key: 401,
  context_length_exceeded: 400,
  model_not_found: 404,
  not_found: 404,
  payload_too_large: 413,
  overloaded: 429,
  internal_error: 500,
};

/** An expected refusal with its HTTP status. */
export class EngineRefusal extends Error {
  override readonly name = 'EngineRefusal';
  readonly code: RefusalCode;
  readonly status: number;
  readonly param: string | null;

  constructor(code: RefusalCode, message: string, param: string | null = null) {
    super(message);
    this.code = code;
    this.status = STATUS[code];
    this.param = param;
  }

  /** The body of the answer, and of an error inside a stream. */
  body(): { error: { message: string; type: string; code: string; param: string | null } } {
    const type = this.status < 500 ? 'invalid_request_error' : 'server_error';
    return { error: { message: this.message, type, code: this.code, param: this.param } };
  }
}
