/**
 * Rules of the Open Responses specification (2026-04-24) for responses of a server, as tables from
 * its schema: required members and their types. OpenAI's own extensions (custom calls, searches)
 * are not included.
 */
import { Ajv2020 } from 'ajv/dist/2020.js';

type Schema = Readonly<Record<string, unknown>>;

const TEXT = { type: 'string' };
const INTEGER = { type: 'integer' };
const NUMBER = { type: 'number' };
const BOOLEAN = { type: 'boolean' };
const orNull = (schema: Schema): Schema => ({ anyOf: [schema, { type: 'null' }] });
const list = (items: Schema): Schema => ({ type: 'array', items });
const object = (properties: Readonly<Record<string, Schema>>, more: Schema = {}): Schema => ({
  type: 'object',
  required: Object.keys(properties),
  properties,
  ...more,
});
const constant = (value: string): Schema => ({ const: value });
const STATUS = { enum: ['in_progress', 'completed', 'incomplete'] };

const ANNOTATION = object({
  type: constant('url_citation'),
  url: TEXT,
  start_index: INTEGER,
  end_index: INTEGER,
  title: TEXT,
});
const LOGPROB = object({ token: TEXT, logprob: NUMBER, bytes: list(INTEGER) });
const OUTPUT_TEXT = object(
  { type: constant('output_text'), text: TEXT, annotations: list(ANNOTATION) },
  {},
);
const SUMMARY_TEXT = object({ type: constant('summary_text'), text: TEXT });
const PART = { oneOf: [OUTPUT_TEXT, SUMMARY_TEXT] };

const ITEMS: Readonly<Record<string, Schema>> = {
  message: object({
    type: constant('message'),
    id: TEXT,
    status: STATUS,
    role: { enum: ['user', 'assistant', 'system', 'developer'] },
    content: list(OUTPUT_TEXT),
  }),
  function_call: object({
    type: constant('function_call'),
    id: TEXT,
    call_id: TEXT,
    name: TEXT,
    arguments: TEXT,
    status: STATUS,
  }),
  reasoning: {
    ...object({ type: constant('reasoning'), id: TEXT, summary: list(SUMMARY_TEXT) }),
  },
};
const ITEM = {
  if: { properties: { type: { enum: Object.keys(ITEMS) } } },
  // oxlint-disable-next-line unicorn/no-thenable -- a keyword of JSON Schema
  then: { oneOf: Object.values(ITEMS) },
};

const FUNCTION_TOOL = object({
  type: constant('function'),
  name: TEXT,
  description: orNull(TEXT),
  parameters: orNull({ type: 'object' }),
  strict: orNull(BOOLEAN),
});

const RESPONSE = object({
  id: TEXT,
  object: constant('response'),
  created_at: INTEGER,
  completed_at: orNull(INTEGER),
  status: TEXT,
  incomplete_details: orNull(object({ reason: TEXT })),
  model: TEXT,
  previous_response_id: orNull(TEXT),
  instructions: orNull(TEXT),
  output: list(ITEM),
  error: orNull(object({ code: TEXT, message: TEXT })),
  tools: list({
    if: { properties: { type: constant('function') } },
    // oxlint-disable-next-line unicorn/no-thenable -- a keyword of JSON Schema
    then: FUNCTION_TOOL,
  }),
  tool_choice: { anyOf: [{ enum: ['none', 'auto', 'required'] }, object({ type: TEXT })] },
  truncation: { enum: ['auto', 'disabled'] },
  parallel_tool_calls: BOOLEAN,
  text: object({ format: object({ type: TEXT }) }),
  top_p: NUMBER,
  presence_penalty: NUMBER,
  frequency_penalty: NUMBER,
  top_logprobs: INTEGER,
  temperature: NUMBER,
  reasoning: orNull(object({ effort: orNull(TEXT), summary: orNull(TEXT) })),
  user: orNull(TEXT),
  usage: orNull(
    object({
      input_tokens: INTEGER,
      output_tokens: INTEGER,
      total_tokens: INTEGER,
      input_tokens_details: object({ cached_tokens: INTEGER }),
      output_tokens_details: object({ reasoning_tokens: INTEGER }),
    }),
  ),
  max_output_tokens: orNull(INTEGER),
  max_tool_calls: orNull(INTEGER),
  store: BOOLEAN,
  background: BOOLEAN,
  service_tier: TEXT,
  metadata: { type: 'object' },
  safety_identifier: orNull(TEXT),
  prompt_cache_key: orNull(TEXT),
});

const OF_RESPONSE = { response: RESPONSE };
const OF_ITEM = { output_index: INTEGER, item: ITEM };
const IN_ITEM = { item_id: TEXT, output_index: INTEGER };
const IN_PART = { ...IN_ITEM, content_index: INTEGER };
const IN_SUMMARY = { ...IN_ITEM, summary_index: INTEGER };

const EVENTS: Readonly<Record<string, Readonly<Record<string, Schema>>>> = {
  'response.created': OF_RESPONSE,
  'response.in_progress': OF_RESPONSE,
  'response.completed': OF_RESPONSE,
  'response.incomplete': OF_RESPONSE,
  'response.failed': OF_RESPONSE,
  'response.output_item.added': OF_ITEM,
  'response.output_item.done': OF_ITEM,
  'response.content_part.added': { ...IN_PART, part: PART },
  'response.content_part.done': { ...IN_PART, part: PART },
  'response.output_text.delta': { ...IN_PART, delta: TEXT, logprobs: list(LOGPROB) },
  'response.output_text.done': { ...IN_PART, text: TEXT, logprobs: list(LOGPROB) },
  'response.output_text.annotation.added': {
    ...IN_PART,
    annotation_index: INTEGER,
    annotation: ANNOTATION,
  },
  'response.reasoning_summary_part.added': { ...IN_SUMMARY, part: PART },
  'response.reasoning_summary_part.done': { ...IN_SUMMARY, part: PART },
  'response.reasoning_summary_text.delta': { ...IN_SUMMARY, delta: TEXT },
  'response.reasoning_summary_text.done': { ...IN_SUMMARY, text: TEXT },
  'response.function_call_arguments.delta': { ...IN_ITEM, delta: TEXT },
  'response.function_call_arguments.done': { ...IN_ITEM, arguments: TEXT },
};

const ajv = new Ajv2020({ strict: false });
const checkResponse = ajv.compile(RESPONSE);
const checkEvents = new Map(
  Object.entries(EVENTS).map(([type, members]) => [
    type,
    ajv.compile(object({ type: constant(type), sequence_number: INTEGER, ...members })),
  ]),
);
/** Events of OpenAI's own tools, which are not specified. */
const EXTENSIONS = /^response\.(?:custom_tool_call_input|web_search_call)\./;

/** Returns the violations of the specification in a response. */
export function responseProblems(response: unknown): string {
  return checkResponse(response) ? '' : ajv.errorsText(checkResponse.errors);
}

/** Returns the violations in an event. An unknown event breaks clients and is a violation. */
export function eventProblems(event: { readonly type: string }): string {
  const { type } = event;
  const check = checkEvents.get(type);
  if (check === undefined) return EXTENSIONS.test(type) ? '' : `unknown event ${type}`;
  return check(event) ? '' : `${type}: ${ajv.errorsText(check.errors)}`;
}
