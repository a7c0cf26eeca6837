/** What the Messages routes answer, and what they say of themselves. */
import { z } from 'zod';
import type { FaultCode } from '../../core/faults.ts';
import { type RouteDescription, jsonAnswer, jsonContent } from '../../http/describe.ts';
import { MODEL_REFUSALS } from '../../http/openapi/refusals.ts';
import { Cost } from '../../http/openapi/cost.ts';
import { CHAT_REFUSALS, Echo, ECHO_EXAMPLE } from '../chat-completions/schema.ts';
import { errorTypeOf } from './message-errors.ts';
import { MessagesBody } from './messages-schema.ts';

const Count = z.int().min(0);

const Usage = z
  .looseObject({
    input_tokens: Count.describe('Without those of the cache.'),
    cache_creation_input_tokens: Count,
    cache_read_input_tokens: Count,
    output_tokens: Count.describe('Thinking included.'),
    output_tokens_details: z.looseObject({ thinking_tokens: Count }).optional(),
    server_tool_use: z.looseObject({ web_search_requests: Count }).optional(),
  })
  .meta({ id: 'MessageUsage' });

const SearchResult = z.looseObject({
  type: z.literal('web_search_result'),
  title: z.string(),
  url: z.string(),
  encrypted_content: z.string(),
  page_age: z.string().nullable(),
});

const SearchFailed = z.looseObject({
  type: z.literal('web_search_tool_result_error'),
  error_code: z.string(),
});

const Citation = z.looseObject({
  type: z.literal('web_search_result_location'),
  url: z.string(),
  title: z.string(),
  cited_text: z.string(),
  encrypted_index: z.string(),
});

const Block = z
  .discriminatedUnion('type', [
    z.looseObject({
      type: z.literal('text'),
      text: z.string(),
      citations: z.array(Citation).optional(),
    }),
    z.looseObject({
      type: z.literal('thinking'),
      thinking: z.string().describe('Empty with `display: "omitted"`.'),
      signature: z.string().describe('To be sent back as it is; only this server can read it.'),
    }),
    z.looseObject({
      type: z.literal('tool_use'),
      id: z.string(),
      name: z.string(),
      input: z.record(z.string(), z.unknown()),
    }),
    z.looseObject({
      type: z.literal('server_tool_use'),
      id: z.string(),
      name: z.literal('web_search'),
      input: z.record(z.string(), z.unknown()),
    }),
    z.looseObject({
      type: z.literal('web_search_tool_result'),
      tool_use_id: z.string(),
      content: z.union([z.array(SearchResult), SearchFailed]),
    }),
  ])
  .meta({ id: 'MessageBlock' });

const StopReason = z.enum(['end_turn', 'stop_sequence', 'max_tokens', 'tool_use', 'refusal']);

const MESSAGE_MEMBERS = {
  id: z.string().regex(/^msg_[0-9a-f]{32}$/),
  type: z.literal('message'),
  role: z.literal('assistant'),
  model: z.string(),
  stop_sequence: z.string().nullable(),
  usage: Usage,
};

const Message = z
  .strictObject({
    ...MESSAGE_MEMBERS,
    content: z.array(Block),
    stop_reason: StopReason,
    cost: Cost,
    svc_parameters: Echo,
  })
  .meta({ id: 'Message' });

const index = Count;

const Delta = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('text_delta'), text: z.string() }),
  z.strictObject({ type: z.literal('input_json_delta'), partial_json: z.string() }),
  z.strictObject({ type: z.literal('thinking_delta'), thinking: z.string() }),
  z.strictObject({ type: z.literal('signature_delta'), signature: z.string() }),
  z.strictObject({ type: z.literal('citations_delta'), citation: Citation }),
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

const ErrorMembers = z.looseObject({ type: z.enum(ERROR_TYPES), message: z.string() });

const MessageEvent = z
  .discriminatedUnion('type', [
    z.strictObject({
      type: z.literal('message_start'),
      message: z.strictObject({
        ...MESSAGE_MEMBERS,
        content: z.array(Block).max(0),
        stop_reason: z.null(),
      }),
    }),
    z.strictObject({ type: z.literal('content_block_start'), index, content_block: Block }),
    z.strictObject({ type: z.literal('content_block_delta'), index, delta: Delta }),
    z.strictObject({ type: z.literal('content_block_stop'), index }),
    z.strictObject({
      type: z.literal('message_delta'),
      delta: z.strictObject({ stop_reason: StopReason, stop_sequence: z.string().nullable() }),
      usage: Usage,
      cost: Cost,
      svc_parameters: Echo,
    }),
    z.strictObject({ type: z.literal('message_stop') }),
    z.strictObject({ type: z.literal('ping') }),
    z.looseObject({
      type: z.literal('error'),
      error: ErrorMembers,
      request_id: z.string(),
      code: z.string().describe('The word of the error catalogue.'),
      usage: Usage.optional(),
      cost: Cost.optional().describe('What the text until then cost; absent when it cost nothing.'),
    }),
  ])
  .meta({ id: 'MessageEvent' });

const REQUEST_ID = '019aa3f1c0de4b7e8c1d2e3f4a5b6c7d';

/** How refusals look: beside the error stands what a payment needs, on a 402. */
const MessageError = {
  schema: z
    .looseObject({
      type: z.literal('error'),
      error: ErrorMembers,
      request_id: z.string(),
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
  answers: [
    {
      status: 200,
      about: 'The message, whole or as a stream.',
      headers: ['model', 'stream', 'message'],
      content: [
        ...jsonContent(Message, MESSAGE),
        {
          type: 'text/event-stream',
          schema: { type: 'string' },
          example: STREAM,
          events: MessageEvent,
        },
      ],
    },
  ],
  refusals: CHAT_REFUSALS,
  refusalBody: MessageError,
};

export const COUNT_TOKENS_DESCRIPTION: RouteDescription = {
  tag: 'Chat',
  summary: 'Count the tokens of a message request',
  about: 'Free. An estimate: what is charged is what the engine has counted.',
  request: jsonContent(MessagesBody.meta({ id: 'MessageRequest' }), REQUEST_EXAMPLE),
  answers: [
    jsonAnswer(
      'About how many tokens the prompt has.',
      z.strictObject({ input_tokens: Count }),
      { input_tokens: 9 },
      'message',
    ),
  ],
  refusals: MODEL_REFUSALS,
  refusalBody: MessageError,
};
