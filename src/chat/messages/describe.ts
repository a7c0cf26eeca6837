/** What the Messages routes answer, and what they say of themselves. */
import { z } from 'zod';
import type { FaultCode } from '../../core/faults.ts';
import {
  type RouteDescription,
  eventContent,
  jsonResponse,
  jsonContent,
} from '../../http/describe.ts';
import { MODEL_REFUSALS } from '../../http/openapi/refusals.ts';
import { Cost } from '../../http/openapi/cost.ts';
import { CHAT_REFUSALS, Echo, ECHO_EXAMPLE } from '../chat-completions/describe.ts';
import { errorTypeOf } from './message-errors.ts';
import { MessagesBody } from './messages-schema.ts';

const Count = z.int().min(0);

const Usage = z
  .looseObject({
    input_tokens: Count.describe('Without those of the cache.'),
    cache_creation_input_tokens: Count.describe('Written to a cache, billed at `cacheWrite`.'),
    cache_read_input_tokens: Count.describe('Read from a cache, at the price of `cacheInput`.'),
    output_tokens: Count.describe('Thinking included.'),
    output_tokens_details: z
      .looseObject({ thinking_tokens: Count.describe('Tokens of thinking.') })
      .optional()
      .describe('Parts of `output_tokens`.'),
    server_tool_use: z
      .looseObject({ web_search_requests: Count.describe('Searches, each charged.') })
      .optional()
      .describe('What the server did for the answer.'),
  })
  .meta({ id: 'MessageUsage' });

const SearchResult = z.looseObject({
  type: z.literal('web_search_result').describe('Marks a page.'),
  title: z.string().describe('Title of the page.'),
  url: z.string().describe('Address of the page.'),
  encrypted_content: z.string().describe('What the model read, sealed; send it back unchanged.'),
  page_age: z.string().nullable().describe('Publication date reported by the search, or null.'),
});

const SearchFailed = z.looseObject({
  type: z.literal('web_search_tool_result_error').describe('Marks a search without results.'),
  error_code: z.string().describe('Why, a word of Anthropic.'),
});

const Citation = z.looseObject({
  type: z.literal('web_search_result_location').describe('Marks a source on the web.'),
  url: z.string().describe('Address of the page.'),
  title: z.string().describe('Title of the page.'),
  cited_text: z.string().describe('The passage that the text rests on.'),
  encrypted_index: z.string().describe('Where it stood, sealed; send it back as it is.'),
});

const Block = z
  .discriminatedUnion('type', [
    z.looseObject({
      type: z.literal('text').describe('Marks text.'),
      text: z.string().describe('The text.'),
      citations: z.array(Citation).optional().describe('Sources of the text, after a search.'),
    }),
    z.looseObject({
      type: z.literal('thinking').describe('Marks what the model thought.'),
      thinking: z.string().describe('Empty with `display: "omitted"`.'),
      signature: z.string().describe('To be sent back as it is; only this server can read it.'),
    }),
    z.looseObject({
      type: z.literal('tool_use').describe('Marks a call that the caller is to make.'),
      id: z.string().describe('Names the call; the block `tool_result` repeats it.'),
      name: z.string().describe('Name of the tool.'),
      input: z.record(z.string(), z.unknown()).describe('Arguments, by the `input_schema`.'),
    }),
    z.looseObject({
      type: z.literal('server_tool_use').describe('Marks a search that this server made.'),
      id: z.string().describe('Names the search; its result repeats it.'),
      name: z.literal('web_search').describe('The one tool that this server has.'),
      input: z.record(z.string(), z.unknown()).describe('What was searched, under `query`.'),
    }),
    z.looseObject({
      type: z.literal('web_search_tool_result').describe('Marks the result of a search.'),
      tool_use_id: z.string().describe('`id` of the block `server_tool_use`.'),
      content: z.union([z.array(SearchResult), SearchFailed]).describe('Pages, or an error.'),
    }),
  ])
  .meta({ id: 'MessageBlock' });

const StopReason = z.enum(['end_turn', 'stop_sequence', 'max_tokens', 'tool_use', 'refusal']);

const MESSAGE_MEMBERS = {
  id: z
    .string()
    .regex(/^msg_[0-9a-f]{32}$/)
    .describe(
      'Id of the answer; its 32 digits are the request id, by which `GET /usage/{id}` finds the receipt.',
    ),
  type: z.literal('message').describe('Kind of the object.'),
  role: z.literal('assistant').describe('The model speaks.'),
  model: z.string().describe('Id of the model that answered.'),
  stop_sequence: z.string().nullable().describe('The entry of `stop_sequences` that ended it.'),
  usage: Usage.describe('What was counted.'),
};

const Message = z
  .strictObject({
    ...MESSAGE_MEMBERS,
    content: z.array(Block).describe('The blocks, in order: thinking, text, calls, searches.'),
    stop_reason: StopReason.describe('Why it ended; `max_tokens` means a limit was reached.'),
    cost: Cost.describe('What was charged.'),
    svc_parameters: Echo.describe('The service parameters that were in force.'),
  })
  .meta({ id: 'Message' });

const index = Count.describe('Place of the block in `content`, from 0.');

const Delta = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('text_delta').describe('Marks a piece of text.'),
    text: z.string().describe('The next piece of the text.'),
  }),
  z.strictObject({
    type: z.literal('input_json_delta').describe('Marks a piece of the input of a call.'),
    partial_json: z.string().describe("The next piece of the input's JSON text."),
  }),
  z.strictObject({
    type: z.literal('thinking_delta').describe('Marks a piece of thinking.'),
    thinking: z.string().describe('The next piece of the thinking.'),
  }),
  z.strictObject({
    type: z.literal('signature_delta').describe('Marks the signature of a block of thinking.'),
    signature: z.string().describe('To be sent back with the block as it is.'),
  }),
  z.strictObject({
    type: z.literal('citations_delta').describe('Marks a source.'),
    citation: Citation.describe('A source of the text so far.'),
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
  type: z.enum(ERROR_TYPES).describe('The kind of error, a word of Anthropic.'),
  message: z.string().describe('A sentence for people.'),
});

const MessageEvent = z
  .discriminatedUnion('type', [
    z.strictObject({
      type: z.literal('message_start').describe('The first event.'),
      message: z
        .strictObject({
          ...MESSAGE_MEMBERS,
          content: z.array(Block).max(0).describe('Empty: the blocks follow.'),
          stop_reason: z.null().describe('Not known yet.'),
        })
        .describe('The answer as it begins.'),
    }),
    z.strictObject({
      type: z.literal('content_block_start').describe('A block begins.'),
      index,
      content_block: Block.describe('The block as it begins, empty.'),
    }),
    z.strictObject({
      type: z.literal('content_block_delta').describe('A block goes on.'),
      index,
      delta: Delta.describe('What has come since the last event.'),
    }),
    z.strictObject({ type: z.literal('content_block_stop').describe('A block ends.'), index }),
    z.strictObject({
      type: z.literal('message_delta').describe('The answer ends, and is charged.'),
      delta: z
        .strictObject({
          stop_reason: StopReason.describe('Why it ends.'),
          stop_sequence: z.string().nullable().describe('Entry of `stop_sequences`, or null.'),
        })
        .describe('How it ends.'),
      usage: Usage.describe('The final counts; they replace those of `message_start`.'),
      cost: Cost.describe('What was charged.'),
      svc_parameters: Echo.describe('The service parameters that were in force.'),
    }),
    z.strictObject({ type: z.literal('message_stop').describe('The last event.') }),
    z.strictObject({
      type: z.literal('ping').describe('Keeps the connection open; says nothing.'),
    }),
    z.looseObject({
      type: z.literal('error').describe('Final event if it failed after the first byte.'),
      error: ErrorMembers.describe('What went wrong.'),
      request_id: z.string().describe('Id of the request, for support.'),
      code: z.string().describe('The word of the error catalogue.'),
      usage: Usage.optional().describe('What was counted until then.'),
      cost: Cost.optional().describe('What the text until then cost; absent when it cost nothing.'),
    }),
  ])
  .meta({ id: 'MessageEvent' });

const REQUEST_ID = '019aa3f1c0de4b7e8c1d2e3f4a5b6c7d';

/** How refusals look; a 402 with payment options is the body of x402 instead. */
const MessageError = {
  schema: z
    .looseObject({
      type: z.literal('error').describe('Marks a refusal.'),
      error: ErrorMembers.describe('What was refused, and why.'),
      request_id: z.string().describe('Id of the request, for support.'),
      code: z.string().describe('The word of the error catalogue.'),
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
  summary: 'Answer a conversation, as Anthropic does',
  about: `Works with the clients of Anthropic's Messages API: set their base URL to this server, without \`/v1\`. The models, their prices, their limits and \`svc_parameters\` are those of \`/chat/completions\`. The key can be sent as \`x-api-key\`.

Tools, images, documents, thinking, structured output and the hosted \`web_search\` are taken; other hosted tools are left out. Whoever does not ask for \`thinking\` gets none. \`max_tokens\` is clamped to what the model can say; a balance that affords less than 1,024 tokens, or than what was asked for, is a 402.

With \`stream: true\` \`message_delta\` carries the usage and the \`cost\`. An error after the first byte is an event; text that had come before it is paid for, and the event says so.`,
  request: jsonContent(MessagesBody.meta({ id: 'MessageRequest' }), REQUEST_EXAMPLE),
  response: {
    status: 200,
    about: 'The message, whole or as a stream.',
    headers: ['model', 'stream', 'message'],
    content: [...jsonContent(Message, MESSAGE), eventContent(MessageEvent, STREAM)],
  },
  refusals: CHAT_REFUSALS,
  refusalBody: MessageError,
};

export const COUNT_TOKENS_DESCRIPTION: RouteDescription = {
  tag: 'Chat',
  summary: 'Count the tokens of a message request',
  about: 'Free. An estimate: what is charged is what the engine has counted.',
  request: jsonContent(MessagesBody.meta({ id: 'MessageRequest' }), REQUEST_EXAMPLE),
  response: jsonResponse(
    'About how many tokens the prompt has.',
    z.strictObject({ input_tokens: Count.describe('About how many tokens the request has.') }),
    { input_tokens: 9 },
    'message',
  ),
  refusals: MODEL_REFUSALS,
  refusalBody: MessageError,
};
