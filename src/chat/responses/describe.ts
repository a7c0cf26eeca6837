/** Descriptions of the routes of `/responses`. */
import * as z from 'zod';
import {
  type RouteDescription,
  eventContent,
  jsonResponse,
  jsonContent,
} from '../../http/describe.ts';
import { CHAT_REFUSALS, Count } from '../chat-completions/describe.ts';
import { RESPONSES_ERRORS } from './response-errors.ts';
import { ResponsesBody } from './request-schema.ts';
import { nullable, ResponseEvent, ResponseObject } from './response-schema.ts';

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
    input_tokens_details: { cached_tokens: 0, cache_write_tokens: 0 },
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
  about: 'Id of the stored response.',
  example: ID,
} as const;

export const RESPONSES_DESCRIPTION: RouteDescription = {
  tag: 'Responses',
  summary: 'Create a response',
  about: `The protocol of Codex, the Agents SDK and the \`openai\` client's \`responses\`. Models, prices, limits and receipts are those of \`POST /chat/completions\`.

Tools: \`function\`, \`custom\` (the description contains the grammar for the model), \`namespace\`, and \`web_search\`, the search of this server. Unknown items and tools are ignored. Reasoning is returned as a summary and, with \`include: ["reasoning.encrypted_content"]\`, sealed for the next turn.

With \`stream: true\` the response is a stream of events; the last one (\`response.completed\`, \`.incomplete\` or \`.failed\`) is sent after the charge. Unless \`store\` is false, \`previous_response_id\` can continue the response until it expires.`,
  request: jsonContent(ResponsesBody.meta({ id: 'ResponsesRequest' }), REQUEST),
  response: {
    status: 200,
    about: 'The completion, as JSON or as a stream.',
    headers: ['model', 'stream'],
    content: [...jsonContent(ResponseObject, ANSWER), eventContent(ResponseEvent, STREAM)],
  },
  refusals: [...CHAT_REFUSALS, 'UNSUPPORTED_PARAMETER', 'PREVIOUS_RESPONSE_NOT_FOUND'],
  refusalBody: RESPONSES_ERRORS,
};

export const StoredQuery = z.object({
  stream: z
    .literal('false', 'A stored response is not streamed; omit this parameter')
    .optional()
    .describe('Must not be `true`: a stored response is not streamed.'),
});

export const GET_RESPONSE_DESCRIPTION: RouteDescription = {
  tag: 'Responses',
  summary: 'Get a stored response',
  parameters: [ID_PARAMETER],
  query: StoredQuery,
  response: jsonResponse('The stored response.', ResponseObject, ANSWER),
  refusals: ['NOT_FOUND'],
  refusalBody: RESPONSES_ERRORS,
};

export const DELETE_RESPONSE_DESCRIPTION: RouteDescription = {
  tag: 'Responses',
  summary: 'Delete a stored response',
  about: 'Responses that continue it can no longer be continued.',
  parameters: [ID_PARAMETER],
  response: jsonResponse(
    'The response is deleted.',
    z.strictObject({
      id: z.string().describe('Id of the response.'),
      object: z.literal('response').describe('Kind of the object.'),
      deleted: z.literal(true).describe('Always true.'),
    }),
    { id: ID, object: 'response', deleted: true },
  ),
  refusals: ['NOT_FOUND'],
  refusalBody: RESPONSES_ERRORS,
};

export const InputItemsQuery = z.object({
  limit: z.coerce
    .number()
    .int()
    .min(1)
    .max(100)
    .default(20)
    .describe('Maximum number of items, 1 to 100.'),
  order: z.enum(['asc', 'desc']).default('desc').describe('Order by position in the input.'),
  after: z.string().optional().describe('Id of the item after which the list starts.'),
});

const ItemList = z.strictObject({
  object: z.literal('list').describe('Kind of the object.'),
  data: z
    .array(
      z.looseObject({
        id: z.string().describe('Id of the item.'),
        type: z.string().describe('Kind of the item.'),
      }),
    )
    .describe('The items, in the requested order.'),
  first_id: nullable(z.string()).describe('Id of the first item, or null.'),
  last_id: nullable(z.string()).describe('Id of the last item, for `after`, or null.'),
  has_more: z.boolean().describe('Whether more items follow.'),
});

const INPUT_ITEM = {
  id: 'msg_019aa3f1c0de4b7e8c1d2e3f4a5b6c7d_i0',
  type: 'message',
  role: 'user',
  content: [{ type: 'input_text', text: 'Hello' }],
};

export const INPUT_ITEMS_DESCRIPTION: RouteDescription = {
  tag: 'Responses',
  summary: 'List the new input items of a stored response',
  parameters: [ID_PARAMETER],
  query: InputItemsQuery,
  response: jsonResponse('The items.', ItemList, {
    object: 'list',
    data: [INPUT_ITEM],
    first_id: INPUT_ITEM.id,
    last_id: INPUT_ITEM.id,
    has_more: false,
  }),
  refusals: ['NOT_FOUND'],
  refusalBody: RESPONSES_ERRORS,
};

export const INPUT_TOKENS_DESCRIPTION: RouteDescription = {
  tag: 'Responses',
  summary: 'Count the tokens of an input',
  about: 'Free. Returns an estimate from the size of the text.',
  request: jsonContent(ResponsesBody, REQUEST),
  response: jsonResponse(
    'The count.',
    z.strictObject({
      object: z.literal('response.input_tokens').describe('Kind of the object.'),
      input_tokens: Count.describe('Estimated tokens of the input.'),
    }),
    { object: 'response.input_tokens', input_tokens: 9 },
  ),
  refusals: ['UNSUPPORTED_PARAMETER', 'PREVIOUS_RESPONSE_NOT_FOUND'],
  refusalBody: RESPONSES_ERRORS,
};
