import assert from 'node:assert/strict';
import { suite, test } from 'node:test';

import { compileTemplate, type PromptInput } from './chat-template.ts';

const NONE = { bos: '<s>', eos: '</s>' };

function input(extra: Partial<PromptInput> = {}): PromptInput {
  return {
    messages: [{ role: 'user', content: 'Hi' }],
    tools: [],
    thinking: true,
    variables: {},
    ...extra,
  };
}

const TOOL = { name: 'f', description: 'does f', parameters: { type: 'object', properties: {} } };

suite('chat templates', () => {
  test('ChatML is the template of a file without one', () => {
    const prompt = compileTemplate(undefined, NONE).render(input());
    assert.equal(prompt.text, '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n');
    assert.equal(prompt.startsThinking, false);
  });

  test('the template receives the begin token and further variables', () => {
    const template = compileTemplate('{{ bos_token }}{{ mood }}{{ messages[0].content }}', NONE);
    assert.equal(template.render(input({ variables: { mood: 'calm ' } })).text, '<s>calm Hi');
  });

  test('the prompt opens or closes the thinking block', () => {
    const template = compileTemplate("{{ 'A: ' }}{# </think> #}", NONE);
    assert.equal(template.canReason, true);
    assert.deepEqual(template.render(input()), { text: 'A: <think>\n', startsThinking: true });
    assert.deepEqual(template.render(input({ thinking: false })), {
      text: 'A: <think>\n\n</think>\n\n',
      startsThinking: false,
    });
  });

  test('a thinking block that the template opens is not opened twice', () => {
    const template = compileTemplate("A: <think>\n{% if false %}</think>{% endif %}{{ '' }}", NONE);
    assert.equal(template.render(input()).text.match(/<think>/g)?.length, 1);
    assert.match(template.render(input({ thinking: false })).text, /<think>\n\n<\/think>\n\n$/);
  });

  test('a template with tool support receives the tools', () => {
    const template = compileTemplate('{{ tools | length }}<tool_call>', NONE);
    assert.equal(template.render(input({ tools: [TOOL] })).text, '1<tool_call>');
  });

  test('tools are described in the system message if the template does not support them', () => {
    const template = compileTemplate(undefined, NONE);
    const { text } = template.render(
      input({
        tools: [TOOL],
        messages: [
          { role: 'system', content: 'Be kind.' },
          { role: 'user', content: 'Go' },
          {
            role: 'assistant',
            content: '',
            tool_calls: [{ function: { name: 'f', arguments: '{"a":1}' } }],
          },
          { role: 'tool', content: '42' },
        ],
      }),
    );
    assert.match(text, /system\nBe kind\.\n\nYou can call these functions:\n.*"does f"/);
    assert.match(text, /<tool_call>\n\{"name": "f", "arguments": \{"a":1\}\}\n<\/tool_call>/);
    assert.match(text, /user\n<tool_response>\n42\n<\/tool_response>/);
  });

  test('a system message that the template rejects is prepended to the first user message', () => {
    const template = compileTemplate(
      "{%- if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ messages[0].content }}",
      NONE,
    );
    const messages = [
      { role: 'system', content: 'S' },
      { role: 'user', content: 'U' },
    ] as const;
    assert.equal(template.render(input({ messages: [...messages] })).text, 'S\n\nU');
    assert.throws(
      () => compileTemplate("{{ raise_exception('never') }}", NONE).render(input()),
      /rejects these messages: never/,
    );
  });
});
