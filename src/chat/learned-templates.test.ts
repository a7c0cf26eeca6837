import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type LogLine, memoryLog } from '../../test/support/memory-log.ts';
import { silentLog } from '../core/log.ts';
import { LearnedTemplates } from './learned.ts';

const MODEL = { id: 'm', templateTokens: undefined };
const prompt = (promptTokens: number, promptBytes = 16, messageCount = 0) => {
  return { promptBytes, messageCount, promptTokens };
};

test('two consecutive short prompts raise the template bound', () => {
  const lines: LogLine[] = [];
  const templates = new LearnedTemplates(memoryLog(lines));
  assert.equal(templates.tokensOf(MODEL), 256);
  templates.note(MODEL, prompt(801));
  assert.equal(templates.tokensOf(MODEL), 256, 'one teaches nothing');
  templates.note(MODEL, prompt(811));
  assert.equal(templates.tokensOf(MODEL), 800, 'the lesser of both, without the text');
  assert.deepEqual(
    lines.map(({ fields }) => fields),
    [{ model: 'm', templateTokens: 800 }],
  );
  // A smaller report does not lower the bound, and other models have learned nothing.
  templates.note(MODEL, prompt(20));
  assert.equal(templates.tokensOf(MODEL), 800);
  assert.equal(templates.tokensOf({ ...MODEL, id: 'other' }), 256);
});

test('a single report, or one of a long prompt, changes nothing', () => {
  const templates = new LearnedTemplates(silentLog);
  for (let round = 0; round < 5; round += 1) {
    templates.note(MODEL, prompt(3_000));
    templates.note(MODEL, prompt(40));
    templates.note(MODEL, prompt(3_000, 257));
  }
  assert.equal(templates.tokensOf(MODEL), 256);
});

test('the tokens of messages, which each hold includes, are no template', () => {
  const templates = new LearnedTemplates(silentLog);
  for (let round = 0; round < 3; round += 1) templates.note(MODEL, prompt(5_000, 250, 1_000));
  assert.equal(templates.tokensOf(MODEL), 256);
  for (let round = 0; round < 2; round += 1) templates.note(MODEL, prompt(801, 16, 10));
  assert.equal(templates.tokensOf(MODEL), 640);
});

test('a configured template length stays', () => {
  const templates = new LearnedTemplates(silentLog);
  const model = { id: 'm', templateTokens: 20 };
  for (let round = 0; round < 3; round += 1) templates.note(model, prompt(900));
  assert.equal(templates.tokensOf(model), 20);
});

test('the template bound is limited and never falls', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.nat(), fc.nat(400))), (reports) => {
      const templates = new LearnedTemplates(silentLog);
      let before = templates.tokensOf(MODEL);
      for (const [tokens, bytes] of reports) {
        templates.note(MODEL, prompt(tokens, bytes));
        const after = templates.tokensOf(MODEL);
        assert.ok(after >= before && after <= 4_096);
        before = after;
      }
    }),
  );
});
