/** The validation of responses against the OpenAPI document finds errors, and makes the test run fail. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { type ServerResponse, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import type { OpenApiDocument } from '../../src/http/openapi/openapi.ts';
import { ResponseChecker } from './response-checker.ts';
import { checkResponses } from './check-responses.ts';
import { type TestApp, startTestApp } from './test-app.ts';
import { endWithUs } from '../support/end-with-us.ts';

const GOOD = '{"object":"list","type":"text","data":{"default":"m"}}';
const HEADERS = {
  'x-request-id': 'a',
  'cf-ray': 'a',
  'x-acme-version': '1',
  'x-content-type-options': 'nosniff',
  'content-type': 'application/json; charset=utf-8',
};
const STREAM_HEADERS = { ...HEADERS, 'x-acme-model-id': 'm', 'x-acme-model-name': 'm' };

describe('`checkResponses`', () => {
  let farebox: TestApp;
  let document: OpenApiDocument;

  before(async () => {
    farebox = await startTestApp({ yaml: 'service: { name: acme, title: Acme }' });
    document = farebox.app.openApi();
  });
  after(() => farebox.stop());

  test('validates every response of a test app', async () => {
    const before = farebox.answers.checked;
    await (await fetch(`${farebox.url}/models`, { headers: { connection: 'close' } })).text();
    assert.ok(farebox.answers.checked > before);
  });

  test('finds statuses, headers, content types, members and codes that are not documented', () => {
    const checker = new ResponseChecker(document);
    const found = (status: number, headers: Readonly<Record<string, string>>, body: string) =>
      checker
        .check(
          {
            method: 'GET',
            path: '/api/v1/models/traits',
            status,
            headers,
            body: Buffer.from(body),
            isWhole: true,
          },
          '/api/v1',
        )
        .join('; ');
    const { 'cf-ray': _ray, ...withoutRay } = HEADERS;
    const failed = { ...HEADERS, 'x-acme-host-name': 'h' };
    assert.equal(found(200, HEADERS, GOOD), '');
    assert.match(found(418, HEADERS, GOOD), /status 418 is not documented/);
    assert.match(found(200, { ...HEADERS, 'x-secret': '1' }, GOOD), /x-secret of a 200 is not doc/);
    assert.match(found(200, withoutRay, GOOD), /CF-RAY of a 200 is missing/);
    assert.match(found(200, HEADERS, '{"object":"list","data":{}}'), /does not fit/);
    assert.match(found(200, HEADERS, '{"object"'), /is not JSON/);
    assert.match(found(200, { ...HEADERS, 'content-type': 'text/xml' }, GOOD), /text\/xml/);
    assert.equal(found(400, failed, '{"error":"No","code":"INVALID_REQUEST"}'), '');
    assert.match(found(400, HEADERS, '{"error":"No","code":"INVALID_REQUEST"}'), /host-name/);
    assert.match(found(400, failed, '{"error":"No","code":"MODEL_OFFLINE"}'), /does not fit/);
    assert.match(found(400, failed, '{"error":"No"}'), /does not fit/);
  });

  test('validates each event of a stream, and only the complete ones if the stream was cut', () => {
    const checker = new ResponseChecker(document);
    const found = (body: string) =>
      checker.check(
        {
          method: 'POST',
          path: '/api/v1/chat/completions',
          status: 200,
          headers: { ...STREAM_HEADERS, 'content-type': 'text/event-stream' },
          body: Buffer.from(body),
          isWhole: false,
        },
        '/api/v1',
      );
    const event = (delta: string) => `data: {"choices":[{"index":0,"delta":${delta}`;
    const end = ',"finish_reason":null}]}\n\n';
    assert.deepEqual(found(`${event('{"content":"a"}')}${end}${event('{"cont')}`), []);
    assert.match(String(found(event('{"content":1}') + end)), /an event does not fit/);
  });

  test('expects an error and its headers on unknown paths', () => {
    const checker = new ResponseChecker(document);
    const found = (status: number, headers: Readonly<Record<string, string>>) =>
      checker.check(
        {
          method: 'GET',
          path: '/nowhere',
          status,
          headers,
          body: Buffer.from('{"error":"No","code":"NOT_FOUND"}'),
          isWhole: true,
        },
        '/api/v1',
      );
    assert.deepEqual(found(404, { ...HEADERS, 'x-acme-host-name': 'h' }), []);
    assert.match(String(found(200, HEADERS)), /status 200 on a path that is not documented/);
    assert.match(String(found(404, { ...HEADERS, 'x-secret': '1' })), /x-secret of a 404/);
  });

  test('fails the call that stops the server, once', async () => {
    const answer = (response: ServerResponse): void => {
      response.writeHead(200, HEADERS);
      response.end('{"surprise":true}');
    };
    const server = createServer((_request, response) => answer(response));
    const app = { server: { server }, routes: [], openApi: () => document };
    const check = checkResponses(app, '/api/v1', '');
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo; // a TCP server has an address of this kind
    await (await fetch(`http://127.0.0.1:${port}/api/v1/models/traits?type=text`)).text();
    server.close();
    await once(server, 'close');
    assert.equal(check.checked, 1);
    const expected = /1 answers are not .*GET \/api\/v1\/models\/traits: the body of a 200/s;
    assert.throws(() => check.assertFitting(), expected);
    check.assertFitting();
  });

  test('fails the process if no test stops the server', async () => {
    const script = `
      import { createServer } from 'node:http';
      import { checkResponses } from ${JSON.stringify(new URL('check-responses.ts', import.meta.url))};
      const server = createServer((request, response) => response.end(request.url));
      const document = { paths: {}, components: { schemas: {}, headers: {} } };
      checkResponses({ server: { server }, routes: [], openApi: () => document }, '/api/v1', '');
      server.listen(0, '127.0.0.1', async () => {
        await (await fetch('http://127.0.0.1:' + server.address().port + '/odd')).text();
        server.closeAllConnections();
        setImmediate(() => process.exit());
      });`;
    const [code, said] = await new Promise<[unknown, string]>((resolve) => {
      endWithUs(
        execFile(process.execPath, ['--input-type=module', '-e', script], (error, _out, err) => {
          resolve([error?.code ?? 0, err]);
        }),
      );
    });
    assert.match(said, /GET \/odd: status 200 on a path that is not documented/);
    assert.equal(code, 1);
  });
});
