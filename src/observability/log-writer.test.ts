/** Contents of the log of a running server, and data that it must never contain. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { systemClock } from '../core/clock.ts';
import { logWriter } from './log-writer.ts';

function lines(): { readonly written: string[]; readonly log: ReturnType<typeof logWriter> } {
  const written: string[] = [];
  const write = (text: string): void => void written.push(text);
  return { written, log: logWriter({ level: 'info', pretty: false, clock: systemClock(), write }) };
}

test('a line is one JSON object with level, time, fields and message', () => {
  const { written, log } = lines();
  log.info({ status: 200, route: '/models' }, 'Request');
  log.debug({}, 'Not shown');
  assert.equal(written.length, 1);
  const { time, ...rest } = JSON.parse(written[0] ?? '');
  assert.deepEqual(rest, { level: 'info', status: 200, route: '/models', msg: 'Request' });
  assert.match(time, /^\d{4}-\d\d-\d\dT/);
});

test('secrets are redacted at the top and one level below', () => {
  const { written, log } = lines();
  const fields = { apiKey: 'sk-1', engine: { id: 'a', secret: 'sk-2' }, list: ['x'], none: null };
  log.warn({ password: 'sk-3', ...fields }, 'Careful');
  assert.doesNotMatch(written.join(''), /sk-/);
  const line = JSON.parse(written[0] ?? '');
  assert.equal(line.apiKey, '[hidden]');
  assert.deepEqual(line.engine, { id: 'a', secret: '[hidden]' });
  assert.deepEqual(line.list, ['x']);
  assert.equal(fields.engine.secret, 'sk-2', 'the caller keeps its own object');
});

test('logged text cannot imitate a log line or control the terminal', () => {
  const written: string[] = [];
  const write = (text: string): void => void written.push(text);
  const log = logWriter({ level: 'info', pretty: true, clock: systemClock(), write });
  log.info({ reason: 'a\r12:00:01 info  b\u001b[2J\u009b2J\nc' }, 'Failed');
  assert.match(
    written.join(''),
    /info  Failed  reason=a\\u000d12:00:01 info  b\\u001b\[2J\\u009b2J\n +\| c\n$/,
  );
});
