/**
 * What the routes of `/responses` answer, and what they say of themselves. Every member that is
 * named is there, as the Open Responses specification demands, with `null` for nothing.
 */
import { z } from 'zod';
import { type RouteDescription, jsonAnswer, jsonContent } from '../../http/describe.ts';
import { Cost } from '../../http/openapi/cost.ts';
import { CHAT_REFUSALS, Echo } from '../chat-completions/schema.ts';
import { RESPONSES_ERRORS } from './refusals.ts';
import { ResponsesBody } from './request-schema.ts';

const Count = z.int().min(0);
const Status = z.enum(['in_progress', 'completed', 'incomplete']);

const UrlCitation = z.strictObject({
  type: z.literal('url_citation'),
  url: z.string(),
  title: z.string(),
  start_index: Count,
  end_index: Count,
});

const OutputText = z.strictObject({
  type: z.literal('output_text'),
  text: z.string(),
  annotations: z.array(UrlCitation),
  logprobs: z.array(z.unknown()),
});

const SummaryText = z.strictObject({ type: z.literal('summary_text'), text: z.string() });

const OutputItem = z
  .discriminatedUnion('type', [
    z.strictObject({
      id: z.string(),
      type: z.literal('message'),
      status: Status,
      role: z.literal('assistant'),
      content: z.array(OutputText),
    }),
    z.strictObject({
      id: z.string(),
      type: z.literal('reasoning'),
      summary: z.array(SummaryText),
      encrypted_content: z.string().optional().describe('For `include`: send it back unchanged.'),
    }),
    z.strictObject({
      id: z.string(),
      type: z.literal('function_call'),
      status: Status,
      call_id: z.string(),
      name: z.string(),
      namespace: z.string().optional(),
      arguments: z.string().describe('JSON text.'),
    }),
    z.strictObject({
      id: z.string(),
      type: z.literal('custom_tool_call'),
      status: Status,
      call_id: z.string(),
      name: z.string(),
      namespace: z.string().optional(),
      input: z.string(),
    }),
    z.strictObject({
      id: z.string(),
      type: z.literal('web_search_call'),
      status: z.enum(['in_progress', 'completed', 'failed', 'incomplete']),
      action: z.strictObject({
        type: z.literal('search'),
        query: z.string(),
        sources: z.array(z.strictObject({ type: z.literal('url'), url: z.string() })),
      }),
    }),
  ])
  .meta({ id: 'ResponseItem' });

const nullable = <T extends z.ZodType>(schema: T) => z.union([schema, z.null()]);

const ResponseObject = z
  .looseObject({
    id: z.string().regex(/^resp_[\da-f]{32}$/),
    object: z.literal('response'),
    created_at: z.int(),
    completed_at: nullable(z.int()),
    status: z.enum(['in_progress', 'completed', 'incomplete', 'failed']),
    error: nullable(z.strictObject({ code: z.string(), message: z.string() })),
    incomplete_details: nullable(z.strictObject({ reason: z.string() })),
    instructions: nullable(z.string()),
    max_output_tokens: nullable(z.int()),
    max_tool_calls: nullable(z.int()),
    model: z.string(),
    output: z.array(OutputItem),
    parallel_tool_calls: z.boolean(),
    previous_response_id: nullable(z.string()),
    prompt_cache_key: nullable(z.string()),
    safety_identifier: nullable(z.string()),
    reasoning: z.strictObject({ effort: nullable(z.string()), summary: nullable(z.string()) }),
    service_tier: z.string(),
    store: z.boolean().describe('Whether it is there for `previous_response_id`.'),
    background: z.literal(false),
    temperature: z.number(),
    top_p: z.number(),
    presence_penalty: z.number(),
    frequency_penalty: z.number(),
    top_logprobs: z.int(),
    text: z.looseObject({ format: z.looseObject({ type: z.string() }) }),
    tool_choice: z.union([z.string(), z.looseObject({ type: z.string() })]),
    tools: z.array(z.looseObject({ type: z.string() })),
    truncation: z.enum(['auto', 'disabled']),
    user: nullable(z.string()),
    metadata: z.record(z.string(), z.unknown()),
    usage: nullable(
      z.strictObject({
        input_tokens: Count,
        input_tokens_details: z.strictObject({ cached_tokens: Count }),
        output_tokens: Count,
        output_tokens_details: z.strictObject({ reasoning_tokens: Count }),
        total_tokens: Count,
      }),
    ),
    cost: Cost.optional().describe('Once it is charged.'),
    svc_parameters: Echo.optional(),
  })
  .meta({ id: 'Response' });

/** The event of a type; all have a number that counts from 0. */
function event<Type extends string>(type: Type, members: z.ZodRawShape) {
  return z.strictObject({ type: z.literal(type), sequence_number: Count, ...members });
}

const ofResponse = { response: ResponseObject };
const ofItem = { output_index: Count, item: OutputItem };
const inItem = { item_id: z.string(), output_index: Count };
const inPart = { ...inItem, content_index: Count };
const inSummary = { ...inItem, summary_index: Count };
const logprobs = z.array(z.unknown());

export const ResponseEvent = z
  .discriminatedUnion('type', [
    event('response.created', ofResponse),
    event('response.in_progress', ofResponse),
    event('response.output_item.added', ofItem),
    event('response.output_item.done', ofItem),
    event('response.content_part.added', { ...inPart, part: OutputText }),
    event('response.content_part.done', { ...inPart, part: OutputText }),
    event('response.output_text.delta', { ...inPart, delta: z.string(), logprobs }),
    event('response.output_text.annotation.added', {
      ...inPart,
      annotation_index: Count,
      annotation: UrlCitation,
    }),
    event('response.output_text.done', { ...inPart, text: z.string(), logprobs }),
    event('response.reasoning_summary_part.added', { ...inSummary, part: SummaryText }),
    event('response.reasoning_summary_text.delta', { ...inSummary, delta: z.string() }),
    event('response.reasoning_summary_text.done', { ...inSummary, text: z.string() }),
    event('response.reasoning_summary_part.done', { ...inSummary, part: SummaryText }),
    event('response.function_call_arguments.delta', { ...inItem, delta: z.string() }),
    event('response.function_call_arguments.done', {
      ...inItem,
      name: z.string(),
      arguments: z.string(),
    }),
    event('response.custom_tool_call_input.delta', { ...inItem, delta: z.string() }),
    event('response.custom_tool_call_input.done', { ...inItem, input: z.string() }),
    event('response.web_search_call.in_progress', inItem),
    event('response.web_search_call.searching', inItem),
    event('response.web_search_call.completed', inItem),
    event('response.completed', ofResponse),
    event('response.incomplete', ofResponse),
    event('response.failed', ofResponse),
  ])
  .meta({ id: 'ResponseEvent' });

const ID = 'resp_019aa3f1c0de4b7e8c1d2e3f4a5b6c7d';
const MESSAGE = {
  id: 'msg_019aa3f1c0de4b7e8c1d2e3f4a5b6c7d_0',
  type: 'message',
  status: 'completed',
  role: 'assistant',
  content: [{ type: 'output_text', text: 'Hello! How can I help?', annotations: [], logprobs: [] }],
};

const ANSWER = {
  id: ID,
  object: 'response',
  created_at: 1795233600,
  model: 'atlas-24b',
  instructions: null,
  previous_response_id: null,
  max_output_tokens: null,
  max_tool_calls: null,
  parallel_tool_calls: true,
  tools: [],
  tool_choice: 'auto',
  temperature: 1,
  top_p: 1,
  presence_penalty: 0,
  frequency_penalty: 0,
  top_logprobs: 0,
  text: { format: { type: 'text' } },
  reasoning: { effort: null, summary: null },
  truncation: 'disabled',
  metadata: {},
  prompt_cache_key: null,
  safety_identifier: null,
  service_tier: 'default',
  user: null,
  background: false,
  status: 'completed',
  completed_at: 1795233601,
  error: null,
  incomplete_details: null,
  store: true,
  usage: {
    input_tokens: 9,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens: 7,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: 16,
  },
  cost: { usd: 0.0000111, diem: 0 },
  output: [MESSAGE],
};

const STREAM = `event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":4,"item_id":"${MESSAGE.id}","output_index":0,"content_index":0,"delta":"Hello","logprobs":[]}

`;

const REQUEST = { model: 'default', input: 'Hello' };
const ID_PARAMETER = {
  name: 'id',
  in: 'path',
  about: 'The id of an answer that was stored.',
  example: ID,
} as const;

export const RESPONSES_DESCRIPTION: RouteDescription = {
  tag: 'Responses',
  summary: 'Answer a conversation, in the Responses protocol',
  about: `The protocol of Codex, of the Agents SDK and of the \`openai\` client's \`responses\`. The same models, prices, limits and receipts as \`POST /chat/completions\`.

Tools: \`function\`, \`custom\` (its grammar is told to the model), \`namespace\`, and \`web_search\`, which is the server's own search. What is not known is left out. Reasoning comes as a summary and, with \`include: ["reasoning.encrypted_content"]\`, sealed for the next turn.

With \`stream: true\` the answer is a stream of events, of which the last (\`response.completed\`, \`.incomplete\` or \`.failed\`) leaves when the answer is charged. Unless \`store\` is false an answer can be continued by \`previous_response_id\` for the time that the operator sets.`,
  request: jsonContent(ResponsesBody.meta({ id: 'ResponsesRequest' }), REQUEST),
  answers: [
    {
      status: 200,
      about: 'The answer, whole or as a stream.',
      headers: ['model', 'stream'],
      content: [
        ...jsonContent(ResponseObject, ANSWER),
        {
          type: 'text/event-stream',
          schema: { type: 'string' },
          example: STREAM,
          events: ResponseEvent,
        },
      ],
    },
  ],
  refusals: [...CHAT_REFUSALS, 'UNSUPPORTED_PARAMETER', 'PREVIOUS_RESPONSE_NOT_FOUND'],
  refusalBody: RESPONSES_ERRORS,
};

export const GET_RESPONSE_DESCRIPTION: RouteDescription = {
  tag: 'Responses',
  summary: 'Read a stored answer',
  parameters: [ID_PARAMETER],
  answers: [jsonAnswer('The answer as it was given.', ResponseObject, ANSWER)],
  refusals: ['NOT_FOUND'],
  refusalBody: RESPONSES_ERRORS,
};

export const DELETE_RESPONSE_DESCRIPTION: RouteDescription = {
  tag: 'Responses',
  summary: 'Remove a stored answer',
  about: 'What continues it cannot be continued any more.',
  parameters: [ID_PARAMETER],
  answers: [
    jsonAnswer(
      'It is removed.',
      z.strictObject({
        id: z.string(),
        object: z.literal('response'),
        deleted: z.literal(true),
      }),
      { id: ID, object: 'response', deleted: true },
    ),
  ],
  refusals: ['NOT_FOUND'],
  refusalBody: RESPONSES_ERRORS,
};

export const InputItemsQuery = z.object({
  limit: z.coerce.number().int().min(1).max(100).default(20).describe('Items, 1 to 100.'),
  order: z.enum(['asc', 'desc']).default('desc').describe('By their place in the input.'),
  after: z.string().optional().describe('The id of the item before the first one.'),
});

const ItemList = z.strictObject({
  object: z.literal('list'),
  data: z.array(z.looseObject({ id: z.string(), type: z.string() })),
  first_id: nullable(z.string()),
  last_id: nullable(z.string()),
  has_more: z.boolean(),
});

const INPUT_ITEM = {
  id: 'msg_019aa3f1c0de4b7e8c1d2e3f4a5b6c7d_i0',
  type: 'message',
  role: 'user',
  content: [{ type: 'input_text', text: 'Hello' }],
};

export const INPUT_ITEMS_DESCRIPTION: RouteDescription = {
  tag: 'Responses',
  summary: 'List what was new in the input of a stored answer',
  parameters: [ID_PARAMETER],
  query: InputItemsQuery,
  answers: [
    jsonAnswer('The items.', ItemList, {
      object: 'list',
      data: [INPUT_ITEM],
      first_id: INPUT_ITEM.id,
      last_id: INPUT_ITEM.id,
      has_more: false,
    }),
  ],
  refusals: ['NOT_FOUND'],
  refusalBody: RESPONSES_ERRORS,
};

export const INPUT_TOKENS_DESCRIPTION: RouteDescription = {
  tag: 'Responses',
  summary: 'Count the tokens of an input',
  about: 'About how many, by the size of the text: no model is asked, and nothing is charged.',
  request: jsonContent(ResponsesBody, REQUEST),
  answers: [
    jsonAnswer(
      'The count.',
      z.strictObject({ object: z.literal('response.input_tokens'), input_tokens: Count }),
      { object: 'response.input_tokens', input_tokens: 9 },
    ),
  ],
  refusals: ['UNSUPPORTED_PARAMETER', 'PREVIOUS_RESPONSE_NOT_FOUND'],
  refusalBody: RESPONSES_ERRORS,
};
