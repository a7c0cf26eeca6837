/** Shared parts of the agent protocols: history, sealed reasoning, names of tools, marks. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import fc from 'fast-check';
import { holdsNoLoop } from '../../../test/app/held-loop.ts';
import { systemIds } from '../../core/ids.ts';
import { CitationMarks } from './citation-marks.ts';
import { effortOf, engineToolName } from './engine-values.ts';
import { Sealer } from './sealed-text.ts';
import { textPart, Transcript } from './transcript.ts';
import { anyCharacter } from '../../../test/support/any-character.ts';

const user = (...texts: string[]) => texts.map(textPart);

test('system text before the first completion is one leading message, later text a reminder', () => {
  const transcript = new Transcript();
  transcript.system('one');
  transcript.user(user('Hi'));
  transcript.system('two');
  transcript.text('Hello');
  transcript.system('late');
  transcript.user(user('more', 'yet'));
  assert.deepEqual(transcript.messages(), [
    { role: 'system', content: 'one\n\ntwo' },
    { role: 'user', content: 'Hi' },
    { role: 'assistant', content: 'Hello' },
    { role: 'user', content: '<system-reminder>\nlate\n</system-reminder>\n\nmore\n\nyet' },
  ]);
});

test('many calls, turns and results do not block the event loop', async () => {
  await holdsNoLoop(async () => {
    const transcript = new Transcript();
    const ids = Array.from({ length: 20_000 }, (_, at) => String(at));
    for (const id of ids) transcript.call({ id, name: 'read', arguments: '{}' });
    for (const id of ids) {
      transcript.result(id, user('x'));
      transcript.result('nobody', user('x'));
    }
    for (const id of ids) {
      transcript.text(id);
      transcript.user(user(id));
      transcript.result('nobody', user('x'));
    }
    // More than one call of a function may take.
    transcript.user(Array.from({ length: 200_000 }, () => textPart('')));
    assert.equal(transcript.messages().length, 1 + ids.length + 2 * ids.length);
  });
});

test('an assistant turn is one message, and its results follow in the order of its calls', () => {
  const transcript = new Transcript();
  transcript.user(user('Go'));
  transcript.reasoning('think');
  transcript.text('I will');
  for (const id of ['a', 'b', 'c']) transcript.call({ id, name: 'read', arguments: '{}' });
  transcript.result('b', [...user('of b'), { type: 'image_url', image_url: { url: 'data:,' } }]);
  transcript.result('a', user('of', 'a'));
  transcript.result('nobody', user('lost'));
  transcript.text('Done');
  const made = (id: string) => ({
    id,
    type: 'function',
    function: { name: 'read', arguments: '{}' },
  });
  assert.deepEqual(transcript.messages(), [
    { role: 'user', content: 'Go' },
    {
      role: 'assistant',
      content: 'I will',
      reasoning_content: 'think',
      tool_calls: [made('a'), made('b'), made('c')],
    },
    { role: 'tool', tool_call_id: 'a', content: 'of\na' },
    { role: 'tool', tool_call_id: 'b', content: 'of b' },
    { role: 'tool', tool_call_id: 'c', content: '(no output)' },
    { role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:,' } }] },
    { role: 'assistant', content: 'Done' },
  ]);
  assert.deepEqual([...transcript.callIds], ['a', 'b', 'c']);
});

test('a result with a repeated call id belongs to the last call without a result', () => {
  const transcript = new Transcript();
  transcript.user(user('Go'));
  for (const result of ['first', 'second']) {
    transcript.call({ id: 'call_0', name: 'read', arguments: '{}' });
    transcript.result('call_0', user(result));
  }
  const results = transcript.messages().filter(({ role }) => role === 'tool');
  assert.deepEqual(
    results.map(({ content }) => content),
    ['first', 'second'],
  );
});

test('reasoning before the last user turn, or without text, is not sent back', () => {
  const transcript = new Transcript();
  transcript.user(user('Hi'));
  transcript.reasoning('old');
  transcript.text('Hello');
  transcript.user(user('And'));
  transcript.reasoning('alone');
  assert.deepEqual(transcript.messages(), [
    { role: 'user', content: 'Hi' },
    { role: 'assistant', content: 'Hello' },
    { role: 'user', content: 'And' },
  ]);
});

test('images beyond the limit of a message begin another message', () => {
  const transcript = new Transcript();
  const picture = { type: 'image_url' as const, image_url: { url: 'data:,' } };
  transcript.user(Array.from({ length: 12 }, () => picture));
  assert.deepEqual(
    transcript.messages().map(({ content }) => content?.length),
    [10, 2],
  );
});

test('sealed text opens only unchanged, on its server and for its account', () => {
  const sealer = new Sealer(randomBytes(32), systemIds());
  const other = new Sealer(randomBytes(32), systemIds());
  fc.assert(
    fc.property(fc.string({ unit: anyCharacter }), fc.string(), fc.nat(), (text, account, at) => {
      const sealed = sealer.seal(text, account);
      assert.match(sealed, /^fbx1\.[\w-]+$/);
      assert.equal(sealer.open(sealed, account), text.toWellFormed());
      assert.equal(sealer.open(sealed, `${account}x`), undefined);
      assert.equal(other.open(sealed, account), undefined);
      const place = 5 + (at % (sealed.length - 6));
      const changed = sealed[place] === 'A' ? 'B' : 'A';
      const forged = sealed.slice(0, place) + changed + sealed.slice(place + 1);
      assert.equal(sealer.open(forged, account), undefined);
    }),
    { numRuns: 30 },
  );
  for (const foreign of [undefined, null, 7, '', 'gAAAAABo', 'fbx1.', 'fbx1.AAAA']) {
    assert.equal(sealer.open(foreign, 'a'), undefined);
  }
});

test('tool names are valid, short and distinct', () => {
  assert.equal(engineToolName('shell'), 'shell');
  assert.equal(engineToolName('read', 'mcp'), 'mcp__read');
  const long = engineToolName('x'.repeat(80));
  assert.match(long, /^[\w-]{64}$/);
  assert.notEqual(long, engineToolName(`${'x'.repeat(79)}y`));
  assert.match(engineToolName('lesen.datei', 'mcp ö'), /^mcp____lesen_datei_[\da-f]{8}$/);
});

test('citation marks are found however the text is cut, and other text is kept', () => {
  const text = 'A[REF]0[/REF] b [REF c [R][REF]12[\\/REF][x][REF]';
  const whole = (cuts: readonly number[]) => {
    const marks = new CitationMarks();
    let from = 0;
    let shown = '';
    for (const cut of [...cuts, text.length]) {
      for (const piece of marks.push(text.slice(from, cut))) {
        shown += 'json' in piece ? piece.json : `<${piece.source}>`;
      }
      from = cut;
    }
    return shown + marks.finish();
  };
  const expected = 'A<0> b [REF c [R]<12>[x][REF]';
  assert.equal(whole([]), expected);
  const cut = fc.nat(text.length);
  fc.assert(
    fc.property(fc.array(cut), (cuts) => {
      assert.equal(whole(cuts.sort((a, b) => a - b)), expected);
    }),
  );
});

test('efforts of other APIs map to the nearest effort', () => {
  assert.equal(effortOf('high'), 'high');
  assert.equal(effortOf('XHigh'), 'xhigh');
  assert.equal(effortOf('ultra'), 'max');
  assert.equal(effortOf('what'), undefined);
  assert.equal(effortOf(null), undefined);
});
