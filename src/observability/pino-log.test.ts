/** What the log of a running server writes, and what it must never write. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pinoLog } from './pino-log.ts';

function lines(): { readonly written: string[]; readonly log: ReturnType<typeof pinoLog> } {
  const written: string[] = [];
  const write = (text: string): void => void written.push(text);
  return { written, log: pinoLog({ level: 'info', pretty: false, write }) };
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

test('secrets are hidden at the top, one level below and in bound fields', () => {
  const { written, log } = lines();
  const fields = { apiKey: 'sk-1', engine: { id: 'a', secret: 'sk-2' }, list: ['x'], none: null };
  log.child({ password: 'sk-3' }).warn(fields, 'Careful');
  assert.doesNotMatch(written.join(''), /sk-/);
  const line = JSON.parse(written[0] ?? '');
  assert.equal(line.apiKey, '[hidden]');
  assert.deepEqual(line.engine, { id: 'a', secret: '[hidden]' });
  assert.deepEqual(line.list, ['x']);
  assert.equal(fields.engine.secret, 'sk-2', 'the caller keeps its own object');
});
