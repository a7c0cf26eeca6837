/** Error responses of services and servers about parameters, as sent on the wire. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { echoOf, refusedParameters } from './refused-parameters.ts';

const PYDANTIC = { type: 'extra_forbidden', msg: 'Extra inputs are not permitted', input: 1 };
const extra = (...loc: unknown[]) => ({ ...PYDANTIC, loc });

function openAi(message: string, param: string | null, code: string | null): object {
  return { error: { message, type: 'invalid_request_error', param, code } };
}

const REFUSALS: readonly (readonly [who: string, body: unknown, names: readonly string[]])[] = [
  [
    'OpenAI',
    openAi(
      "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
      'max_tokens',
      'unsupported_parameter',
    ),
    ['max_tokens'],
  ],
  [
    'OpenAI, both caps',
    openAi(
      "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
      'max_tokens',
      'invalid_parameter_combination',
    ),
    ['max_tokens'],
  ],
  [
    'OpenAI, unknown',
    openAi("Unknown parameter: 'top_k'.", 'top_k', 'unknown_parameter'),
    ['top_k'],
  ],
  ['OpenAI, older', openAi('Unrecognized request argument supplied: min_p', null, null), ['min_p']],
  [
    'OpenAI, nested',
    openAi("Unknown parameter: 'stream_options.x'.", 'stream_options.x', 'unknown_parameter'),
    ['stream_options.x'],
  ],
  [
    'OpenAI, one value only',
    openAi(
      "Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value is supported.",
      'temperature',
      'unsupported_value',
    ),
    ['temperature'],
  ],
  [
    'Volcengine',
    {
      error: {
        code: 'InvalidParameter',
        message:
          'The parameter max_tokens specified in the request are not valid: max_tokens and max_completion_tokens cannot be set at the same time. Request id: x',
        param: 'max_tokens',
        type: 'BadRequest',
      },
    },
    ['max_tokens'],
  ],
  [
    'Mistral',
    {
      object: 'error',
      message: { detail: [extra('body', 'max_completion_tokens')] },
      type: 'invalid_request_error',
      param: null,
      code: null,
    },
    ['max_completion_tokens'],
  ],
  [
    'Mistral, messages',
    { message: { detail: [extra('body', 'messages', 31, 'assistant', 'reasoning_content')] } },
    ['messages: reasoning_content'],
  ],
  [
    'Mistral, as text',
    { object: 'error', message: JSON.stringify({ detail: [extra('body', 'frequency_penalty')] }) },
    ['frequency_penalty'],
  ],
  [
    'vLLM, older',
    {
      object: 'error',
      message:
        "[{'type': 'extra_forbidden', 'loc': ('body', 'max_completion_tokens'), 'msg': 'Extra inputs are not permitted', 'input': 800}]",
      type: 'BadRequestError',
      param: null,
      code: 400,
    },
    ['max_completion_tokens'],
  ],
  [
    'Gemini',
    [
      {
        error: {
          code: 400,
          message:
            'Invalid JSON payload received. Unknown name "frequency_penalty": Cannot find field.\nInvalid JSON payload received. Unknown name "top_k": Cannot find field.',
          status: 'INVALID_ARGUMENT',
        },
      },
    ],
    ['frequency_penalty', 'top_k'],
  ],
  [
    'OpenAI, a part',
    openAi(
      "Unknown parameter: 'messages[0].content[0].cache_control'.",
      'messages[0].content[0].cache_control',
      'unknown_parameter',
    ),
    ['messages: cache_control'],
  ],
  [
    'OpenAI, a tool',
    openAi("Unknown parameter: 'tools[0].x'.", 'tools[0].cache_control', 'unknown_parameter'),
    ['messages: cache_control'],
  ],
  [
    'Gemini, a part',
    [
      {
        error: {
          code: 400,
          message:
            'Invalid JSON payload received. Unknown name "cache_control" at \'messages[0].content[0]\': Cannot find field.',
          status: 'INVALID_ARGUMENT',
        },
      },
    ],
    ['messages: cache_control'],
  ],
  [
    'Groq, messages',
    openAi(
      "'messages.2' : for 'role:assistant' the following must be satisfied[('messages.2' : property 'reasoning_content' is unsupported)]",
      null,
      null,
    ),
    ['messages: reasoning_content'],
  ],
  [
    'vLLM with the tokenizer of Mistral',
    openAi(
      'Tool call id was call_8f3b1c but must be a-z, A-Z, 0-9, with a length of 9.',
      null,
      null,
    ),
    ['messages: tool_call_id.length'],
  ],
  ['Groq', openAi("property 'min_p' is unsupported", null, null), ['min_p']],
  [
    'xAI',
    {
      code: 'Client specified an invalid argument',
      error: 'Argument not supported on this model: presencePenalty',
    },
    ['presencePenalty'],
  ],
  [
    'jsonschema',
    { error: "Additional properties are not allowed ('top_k' was unexpected)" },
    ['top_k'],
  ],
  // Errors that name no parameter to omit.
  ['a value', openAi('max_tokens is too large: 5000', 'max_tokens', 'invalid_value'), []],
  [
    'a value of effort',
    openAi(
      "Unsupported value: 'reasoning_effort' does not support 'none' with this model. Supported values are: 'low'.",
      'reasoning_effort',
      'unsupported_value',
    ),
    [],
  ],
  [
    'a long prompt',
    openAi(
      "This model's maximum context length is 4096 tokens. Reduce the length of the messages.",
      'messages',
      'context_length_exceeded',
    ),
    [],
  ],
  ['nothing', '', []],
];

for (const [who, body, names] of REFUSALS) {
  test(`${who}: ${names.join(', ') || 'no parameter'}`, () => {
    const bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
    const seen = refusedParameters(bytes, echoOf({})).map(({ name, inMessages, inner }) => {
      const full = inner === undefined ? name : `${name}.${inner}`;
      return inMessages ? `messages: ${full}` : full;
    });
    assert.deepEqual(seen, names);
  });
}

test('a sentence that the request contains names no parameter', () => {
  const namedBy = (message: string, request: object): readonly string[] => {
    const bytes = Buffer.from(JSON.stringify(openAi(message, null, 'invalid_value')));
    return refusedParameters(bytes, echoOf(request)).map(({ name }) => name);
  };
  const own = "Unknown parameter: 'top_k'.";
  const texts = [
    own,
    'unknown  parameter: "top_k"',
    'Fix this:\nUnknown parameter: `top_k`',
    `[{'type': 'extra_forbidden', 'loc': ('body', 'top_k'), 'msg': 'No'}]`,
    'Tool call id was x but must be a-z, A-Z, 0-9, with a length of 9.',
  ];
  for (const text of texts) {
    // As pydantic repeats a value of the wrong type.
    const message = `Input should be a valid boolean, 'input': ${JSON.stringify(text)}`;
    assert.deepEqual(namedBy(message, { ignore_eos: text }), [], text);
  }
  assert.deepEqual(namedBy(own, { top_k: 1, prompt: 'top_k' }), ['top_k']);
});
