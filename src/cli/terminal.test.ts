/** Names chosen by callers reach the terminal only with escaped control characters. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { systemClock } from '../core/clock.ts';
import { logWriter } from '../observability/log-writer.ts';
import { printableConsole, table } from './terminal.ts';

const NAME = '\u001b]0;owned\u0007\u001b[2Ka\nb\u202e\u009b31m';
/** Every character that a terminal interprets, except the line end. */
const CONTROL = /[^\n -~¡-\u061b]/;

function terminal() {
  let written = '';
  const output = { isTTY: true, write: (text: string) => void (written += text) };
  const console = printableConsole({
    argv: [],
    env: {},
    cwd: '',
    stdout: output,
    stderr: output,
    onSignal: () => undefined,
  });
  return { console, written: () => written };
}

test('`write` escapes control characters and keeps JSON valid', () => {
  const { console, written } = terminal();
  console.stdout.write(`${JSON.stringify({ name: NAME })}\n`);
  assert.doesNotMatch(written(), CONTROL);
  assert.deepEqual(JSON.parse(written()), { name: NAME });
  console.stderr.write(NAME);
  assert.doesNotMatch(written(), CONTROL);
});

test('`table` escapes line breaks in cells', () => {
  const shown = table(['NAME', 'ID'], [[NAME, '1']]);
  assert.equal(shown.split('\n').length, 3);
});

test('a log message with line breaks cannot look like another log line', () => {
  let written = '';
  const log = logWriter({
    level: 'info',
    pretty: true,
    clock: systemClock(),
    write: (text) => void (written += text),
  });
  log.info({ reason: 'x\n12:00:01 error Forged' }, 'Failed\nor so');
  const [first, ...rest] = written.trimEnd().split('\n');
  assert.match(first ?? '', /^\d\d:\d\d:\d\d info {2}Failed$/);
  for (const line of rest) assert.match(line, /^ {9}\| /);
});

test('`draw` keeps control characters', () => {
  const { console, written } = terminal();
  console.stderr.draw?.('\r\u001b[2Khalf');
  assert.equal(written(), '\r\u001b[2Khalf');
});
