/** What others named never reaches a terminal raw. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { systemClock } from '../core/clock.ts';
import { logWriter } from '../observability/log-writer.ts';
import { printableConsole, table } from './terminal.ts';

const NAME = '\u001b]0;owned\u0007\u001b[2Ka\nb\u202e\u009b31m';
/** Everything that a terminal acts on, but the line end. */
const ACTS = /[^\n -~¡-\u061b]/;

function terminal() {
  let said = '';
  const output = { isTTY: true, write: (text: string) => void (said += text) };
  const console = printableConsole({
    argv: [],
    env: {},
    cwd: '',
    stdout: output,
    stderr: output,
    onSignal: () => undefined,
  });
  return { console, said: () => said };
}

test('control characters are shown as what they are, and JSON stays JSON', () => {
  const { console, said } = terminal();
  console.stdout.write(`${JSON.stringify({ name: NAME })}\n`);
  assert.doesNotMatch(said(), ACTS);
  assert.deepEqual(JSON.parse(said()), { name: NAME });
  console.stderr.write(NAME);
  assert.doesNotMatch(said(), ACTS);
});

test('a cell of a table is one line', () => {
  const shown = table(['NAME', 'ID'], [[NAME, '1']]);
  assert.equal(shown.split('\n').length, 3);
});

test('a log line on a terminal cannot begin another', () => {
  let said = '';
  const log = logWriter({
    level: 'info',
    pretty: true,
    clock: systemClock(),
    write: (text) => void (said += text),
  });
  log.info({ reason: 'x\n12:00:01 error Forged' }, 'Failed\nor so');
  const [first, ...rest] = said.trimEnd().split('\n');
  assert.match(first ?? '', /^\d\d:\d\d:\d\d info {2}Failed$/);
  for (const line of rest) assert.match(line, /^ {9}\| /);
});

test('a line that is drawn again keeps its control characters', () => {
  const { console, said } = terminal();
  console.stderr.draw?.('\r\u001b[2Khalf');
  assert.equal(said(), '\r\u001b[2Khalf');
});
