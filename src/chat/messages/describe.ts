/** Descriptions of the Messages routes and their responses. */
import * as z from 'zod';
import type { FaultCode } from '../../core/faults.ts';
import {
  type RouteDescription,
  eventContent,
  jsonResponse,
  jsonContent,
} from '../../http/describe.ts';
import { MODEL_REFUSALS } from '../../http/openapi/refusals.ts';
import { Cost } from '../../http/openapi/cost.ts';
import { CHAT_REFUSALS, Count, Echo, ECHO_EXAMPLE } from '../chat-completions/describe.ts';
import { errorTypeOf } from './message-errors.ts';
import { MessagesBody } from './messages-schema.ts';

const Usage = z
  .looseObject({
    input_tokens: Count.describe('Prompt tokens neither read from nor written to a cache.'),
    cache_creation_input_tokens: Count.describe('Written to a cache; billed at `cacheWrite`.'),
    cache_read_input_tokens: Count.describe('Read from a cache; billed at `cacheInput`.'),
    output_tokens: Count.describe('Tokens of the message, thinking included.'),
    output_tokens_details: z
      .looseObject({ thinking_tokens: Count.describe('Reasoning tokens.') })
      .optional()
      .describe('Parts of `output_tokens`.'),
    server_tool_use: z
      .looseObject({ web_search_requests: Count.describe('Number of searches, each charged.') })
      .nullish()
      .describe('Tools that the server ran.'),
  })
  .meta({ id: 'MessageUsage' });

const Called = {
  caller: z
    .looseObject({ type: z.string().describe('`direct`: the model itself.') })
    .optional()
    .describe('Origin of the call.'),
};

const SearchResult = z.looseObject({
  type: z.literal('web_search_result').describe('Kind of the result.'),
  title: z.string().describe('Title of the page.'),
  url: z.string().describe('Address of the page.'),
  encrypted_content: z.string().describe('Opaque; send it back unchanged.'),
  page_age: z.string().nullable().describe('Publication date reported by the search, or null.'),
});

const SearchFailed = z.looseObject({
  type: z.literal('web_search_tool_result_error').describe('Kind of the result.'),
  error_code: z.string().describe("Error code of Anthropic's API."),
});

const Citation = z.looseObject({
  type: z
    .string()
    .describe('`web_search_result_location`, or a place in a document of the request.'),
  url: z.string().optional().describe('Address of the page.'),
  title: z.string().nullish().describe('Title of the page.'),
  cited_text: z.string().describe('The cited passage.'),
  encrypted_index: z.string().optional().describe('Opaque; send it back unchanged.'),
});

const Block = z
  .discriminatedUnion('type', [
    z.looseObject({
      type: z.literal('text').describe('Kind of the block.'),
      text: z.string().describe('The text.'),
      citations: z.array(Citation).optional().describe('Sources of the text after a search.'),
    }),
    z.looseObject({
      type: z.literal('thinking').describe('Kind of the block.'),
      thinking: z.string().describe('Reasoning text; empty with `display: "omitted"`.'),
      signature: z.string().describe('Sealed reasoning; send it back unchanged.'),
    }),
    z.looseObject({
      type: z.literal('redacted_thinking').describe('Kind of the block.'),
      data: z
        .string()
        .describe("Sealed signature of the engine's reasoning; send it back unchanged."),
    }),
    z.looseObject({
      type: z.literal('tool_use').describe('Kind of the block: a call for the caller to run.'),
      id: z.string().describe('Id of the call; its `tool_result` block repeats it.'),
      name: z.string().describe('Name of the tool.'),
      input: z
        .record(z.string(), z.unknown())
        .describe('Arguments, as `input_schema` defines them.'),
      ...Called,
    }),
    z.looseObject({
      type: z.literal('server_tool_use').describe('Kind of the block: a search by this server.'),
      id: z.string().describe('Id of the search; its result repeats it.'),
      name: z.literal('web_search').describe('Name of the tool.'),
      input: z.record(z.string(), z.unknown()).describe('The search query, in `query`.'),
      ...Called,
    }),
    z.looseObject({
      type: z.literal('web_search_tool_result').describe('Kind of the block: results of a search.'),
      tool_use_id: z.string().describe('Id of the `server_tool_use` block.'),
      content: z.union([z.array(SearchResult), SearchFailed]).describe('The results, or an error.'),
      ...Called,
    }),
  ])
  .meta({ id: 'MessageBlock' });

const StopReason = z.enum([
  'end_turn',
  'stop_sequence',
  'max_tokens',
  'tool_use',
  'refusal',
  'pause_turn',
  'model_context_window_exceeded',
]);

const MESSAGE_MEMBERS = {
  id: z
    .string()
    .describe(
      '`msg_` and the request id, by which `GET /usage/{id}` finds the receipt; the id of the engine if the response is passed on. The header `request-id` always has the request id.',
    ),
  type: z.literal('message').describe('Kind of the object.'),
  role: z.literal('assistant').describe('Role of the author.'),
  model: z.string().describe('Id of the model that served the request.'),
  stop_sequence: z.string().nullable().describe('Entry of `stop_sequences` that matched, or null.'),
  usage: Usage.describe('Billed tokens.'),
};

const Message = z
  .looseObject({
    ...MESSAGE_MEMBERS,
    content: z.array(Block).describe('Blocks in order: thinking, text, tool calls, searches.'),
    stop_reason: StopReason.describe('Why it ended; `max_tokens` means a limit was reached.'),
    cost: Cost.describe('Charge for the request.'),
    svc_parameters: Echo.describe('Effective service parameters.'),
  })
  .meta({ id: 'Message' });

const index = Count.describe('Index of the block in `content`, from 0.');

const Delta = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('text_delta').describe('Kind of the delta.'),
    text: z.string().describe('Next piece of the text.'),
  }),
  z.strictObject({
    type: z.literal('input_json_delta').describe('Kind of the delta.'),
    partial_json: z.string().describe('Next piece of the JSON text of the input.'),
  }),
  z.strictObject({
    type: z.literal('thinking_delta').describe('Kind of the delta.'),
    thinking: z.string().describe('Next piece of the reasoning.'),
  }),
  z.strictObject({
    type: z.literal('signature_delta').describe('Kind of the delta.'),
    signature: z.string().describe('Sealed reasoning; send it back unchanged.'),
  }),
  z.strictObject({
    type: z.literal('citations_delta').describe('Kind of the delta.'),
    citation: Citation.describe('Source of the text so far.'),
  }),
]);

const ERROR_TYPES = [
  'invalid_request_error',
  'authentication_error',
  'billing_error',
  'permission_error',
  'not_found_error',
  'request_too_large',
  'rate_limit_error',
  'timeout_error',
  'overloaded_error',
  'api_error',
] as const;

const ErrorMembers = z.looseObject({
  type: z.enum(ERROR_TYPES).describe("Error type of Anthropic's API."),
  message: z.string().describe('Error text.'),
});

const ERROR_MEMBERS = {
  error: ErrorMembers.describe('The error.'),
  request_id: z.string().describe('Id of the request.'),
  code: z.string().describe('Code of the error catalogue.'),
};

const MessageEvent = z
  .discriminatedUnion('type', [
    z.strictObject({
      type: z.literal('message_start').describe('First event of a stream.'),
      message: z
        .looseObject({
          ...MESSAGE_MEMBERS,
          content: z.array(Block).max(0).describe('Empty; the blocks follow as events.'),
          stop_reason: z.null().describe('Null until the message ends.'),
        })
        .describe('The message without content.'),
    }),
    z.strictObject({
      type: z.literal('content_block_start').describe('Start of a block.'),
      index,
      content_block: Block.describe('The empty block.'),
    }),
    z.strictObject({
      type: z.literal('content_block_delta').describe('Piece of a block.'),
      index,
      delta: Delta.describe('Content since the previous event.'),
    }),
    z.strictObject({ type: z.literal('content_block_stop').describe('End of a block.'), index }),
    z.looseObject({
      type: z.literal('message_delta').describe('End of the message, after its charge.'),
      delta: z
        .looseObject({
          stop_reason: StopReason.describe('Why the message ended.'),
          stop_sequence: MESSAGE_MEMBERS.stop_sequence,
        })
        .describe('How the message ended.'),
      usage: Usage.partial().describe(
        'Final token counts, which replace those of `message_start`; counts that are absent stay.',
      ),
      cost: Cost.describe('Charge for the request.'),
      svc_parameters: Echo.describe('Effective service parameters.'),
    }),
    z.strictObject({ type: z.literal('message_stop').describe('Last event of a stream.') }),
    z.strictObject({
      type: z.literal('ping').describe('Keep-alive.'),
    }),
    z.looseObject({
      type: z.literal('error').describe('Last event of a stream that failed.'),
      ...ERROR_MEMBERS,
      usage: Usage.optional().describe('Billed tokens up to the error.'),
      cost: Cost.optional().describe('Charge up to the error; absent if there is none.'),
    }),
  ])
  .meta({ id: 'MessageEvent' });

const REQUEST_ID = '019aa3f1c0de4b7e8c1d2e3f4a5b6c7d';

/** Format of error responses; a 402 with payment options is the body of x402 instead. */
const MessageError = {
  schema: z
    .looseObject({
      type: z.literal('error').describe('Kind of the object.'),
      ...ERROR_MEMBERS,
    })
    .meta({ id: 'MessageError' }),
  example: (message: string, code: FaultCode) => ({
    type: 'error',
    error: { type: errorTypeOf(code), message },
    request_id: REQUEST_ID,
    code,
  }),
};

const USAGE = {
  input_tokens: 9,
  cache_creation_input_tokens: 0,
  cache_read_input_tokens: 0,
  output_tokens: 7,
  output_tokens_details: { thinking_tokens: 0 },
};

const MESSAGE = {
  id: `msg_${REQUEST_ID}`,
  type: 'message',
  role: 'assistant',
  model: 'atlas-24b',
  content: [{ type: 'text', text: 'Hello! How can I help?' }],
  stop_reason: 'end_turn',
  stop_sequence: null,
  usage: USAGE,
  cost: { usd: 0.0000111, diem: 0 },
  svc_parameters: ECHO_EXAMPLE,
};

const STREAM = `event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

`;

const REQUEST_EXAMPLE = {
  model: 'default',
  max_tokens: 1024,
  messages: [{ role: 'user', content: 'Hello' }],
};

export const MESSAGES_DESCRIPTION: RouteDescription = {
  tag: 'Chat',
  summary: 'Create a message',
  about: `Works with the clients of Anthropic's Messages API: set their base URL to this server, without \`/v1\`. Models, prices, limits and \`svc_parameters\` are those of \`/chat/completions\`. The key can be sent as \`x-api-key\`.

Tools, images, documents, thinking, structured output and the hosted \`web_search\` are supported; other hosted tools are ignored. There is no thinking unless \`thinking\` requests it. \`max_tokens\` is lowered to the limit of the model; if the balance affords neither 1,024 tokens nor \`max_tokens\`, the request returns 402.

With \`stream: true\` the event \`message_delta\` contains the usage and the \`cost\`. An error after the first byte is an event; text sent before it is charged, and the event contains the charge.`,
  request: jsonContent(MessagesBody.meta({ id: 'MessageRequest' }), REQUEST_EXAMPLE),
  response: {
    status: 200,
    about: 'The message, as JSON or as a stream.',
    headers: ['model', 'stream', 'message'],
    content: [...jsonContent(Message, MESSAGE), eventContent(MessageEvent, STREAM)],
  },
  refusals: CHAT_REFUSALS,
  refusalBody: MessageError,
};

export const COUNT_TOKENS_DESCRIPTION: RouteDescription = {
  tag: 'Chat',
  summary: 'Count the tokens of a message',
  about: "Free. Returns an estimate; charges use the engine's count.",
  request: jsonContent(MessagesBody.meta({ id: 'MessageRequest' }), REQUEST_EXAMPLE),
  response: jsonResponse(
    'The estimate.',
    z.strictObject({ input_tokens: Count.describe('Estimated tokens of the prompt.') }),
    { input_tokens: 9 },
    'message',
  ),
  refusals: MODEL_REFUSALS,
  refusalBody: MessageError,
};
