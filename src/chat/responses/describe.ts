/** What the routes of `/responses` say of themselves. */
import { z } from 'zod';
import {
  type RouteDescription,
  eventContent,
  jsonResponse,
  jsonContent,
} from '../../http/describe.ts';
import { CHAT_REFUSALS } from '../chat-completions/describe.ts';
import { RESPONSES_ERRORS } from './refusals.ts';
import { ResponsesBody } from './request-schema.ts';
import { Count, nullable, ResponseEvent, ResponseObject } from './response-schema.ts';

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
  response: {
    status: 200,
    about: 'The answer, whole or as a stream.',
    headers: ['model', 'stream'],
    content: [...jsonContent(ResponseObject, ANSWER), eventContent(ResponseEvent, STREAM)],
  },
  refusals: [...CHAT_REFUSALS, 'UNSUPPORTED_PARAMETER', 'PREVIOUS_RESPONSE_NOT_FOUND'],
  refusalBody: RESPONSES_ERRORS,
};

export const GET_RESPONSE_DESCRIPTION: RouteDescription = {
  tag: 'Responses',
  summary: 'Read a stored answer',
  parameters: [ID_PARAMETER],
  response: jsonResponse('The answer as it was given.', ResponseObject, ANSWER),
  refusals: ['NOT_FOUND'],
  refusalBody: RESPONSES_ERRORS,
};

export const DELETE_RESPONSE_DESCRIPTION: RouteDescription = {
  tag: 'Responses',
  summary: 'Remove a stored answer',
  about: 'What continues it cannot be continued any more.',
  parameters: [ID_PARAMETER],
  response: jsonResponse(
    'It is removed.',
    z.strictObject({
      id: z.string().describe('Id of the answer.'),
      object: z.literal('response').describe('Kind of the object.'),
      deleted: z.literal(true).describe('It is gone.'),
    }),
    { id: ID, object: 'response', deleted: true },
  ),
  refusals: ['NOT_FOUND'],
  refusalBody: RESPONSES_ERRORS,
};

export const InputItemsQuery = z.object({
  limit: z.coerce.number().int().min(1).max(100).default(20).describe('Items, 1 to 100.'),
  order: z.enum(['asc', 'desc']).default('desc').describe('By their place in the input.'),
  after: z.string().optional().describe('The id of the item before the first one.'),
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
    .describe('The items, in the order that was asked for.'),
  first_id: nullable(z.string()).describe('Id of the first item; null without items.'),
  last_id: nullable(z.string()).describe('Id of the last item, for `after`; null without items.'),
  has_more: z.boolean().describe('Whether there are items after these.'),
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
  about: 'About how many, by the size of the text: no model is asked, and nothing is charged.',
  request: jsonContent(ResponsesBody, REQUEST),
  response: jsonResponse(
    'The count.',
    z.strictObject({
      object: z.literal('response.input_tokens').describe('Kind of the object.'),
      input_tokens: Count.describe('About how many tokens the input has.'),
    }),
    { object: 'response.input_tokens', input_tokens: 9 },
  ),
  refusals: ['UNSUPPORTED_PARAMETER', 'PREVIOUS_RESPONSE_NOT_FOUND'],
  refusalBody: RESPONSES_ERRORS,
};
