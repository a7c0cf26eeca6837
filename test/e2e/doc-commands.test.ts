/** The `curl` commands of the documentation call routes and RPC networks that exist. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { filesBelow, readText } from '../tidy/source-tree.ts';

/** A command with the lines that a backslash continues. */
const COMMAND = /^curl\b(?:[^\n\\]|\\[^])*/gm;
const URL_OF_SERVER = /(?:\$FAREBOX_URL|https?:\/\/[\w.-]+(?::8402)?\/api\/v1)(\/[^\s"'?]*)/;
const SENDS_BODY = /\s(?:-d|-F|--json|--data(?:-\w+)?|--form)[\s=]/;
const METHOD = /\s-X\s*([A-Z]+)/;

interface Command {
  readonly page: string;
  readonly method: string;
  readonly path: string;
}

function commands(): Command[] {
  const pages = filesBelow('').filter((path) => path.endsWith('.md'));
  return pages.flatMap((page) =>
    [...readText(page).matchAll(COMMAND)].flatMap(([command]) => {
      const path = URL_OF_SERVER.exec(command)?.[1];
      const method = METHOD.exec(command)?.[1] ?? (SENDS_BODY.test(command) ? 'POST' : 'GET');
      return path === undefined ? [] : [{ page, method, path }];
    }),
  );
}

describe('the commands of the documentation', () => {
  let farebox: TestApp;
  before(async () => {
    farebox = await startTestApp();
  });
  after(() => farebox.stop());

  test('call routes that exist', () => {
    const { routes } = farebox.app.server;
    const found = commands();
    assert.ok(found.length > 15, `${found.length} commands`);
    const wrong = found.filter(
      ({ method, path }) =>
        !routes.some(
          (route) =>
            route.method === method &&
            new RegExp(`^${route.path.replaceAll(/:\w+/g, '[^/]+')}$`).test(path),
        ),
    );
    assert.deepEqual(wrong, []);
  });

  test('name RPC networks that exist', async () => {
    const answer = await fetch(`${farebox.url}/crypto/rpc/networks`);
    const { networks } = (await answer.json()) as { networks: string[] };
    const named = commands().flatMap(({ page, path }) => {
      const network = /^\/crypto\/rpc\/([^/]+)$/.exec(path)?.[1];
      return network === undefined || network === 'networks' ? [] : [{ page, network }];
    });
    assert.ok(named.length > 1);
    assert.deepEqual(
      named.filter(({ network }) => !networks.includes(network)),
      [],
    );
  });
});
