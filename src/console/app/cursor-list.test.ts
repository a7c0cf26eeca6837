/** A list shows pages of its own filters only, and none out of order. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseHTML } from 'linkedom';
import { h, render } from 'preact';
import { replaceGlobals } from '../../../test/support/replace-globals.ts';
import { until } from '../../../test/support/until.ts';
import type { CursorList } from './cursor-list.ts';

const { document } = parseHTML('<html><body></body></html>');
const page = { document, location: { origin: 'http://localhost' } };
replaceGlobals({ ...page, fetch });
const { useCursorList } = await import('./cursor-list.ts');

/** Responses that the test gives, by path. */
const waiting = new Map<string, PromiseWithResolvers<Response>>();

globalThis.fetch = (url) => {
  const response = Promise.withResolvers<Response>();
  waiting.set((url as string).replace('/api/v1', ''), response); // from `call`
  return response.promise;
};

async function respond(path: string, data: readonly number[], nextCursor?: string): Promise<void> {
  await until(() => waiting.has(path), path);
  waiting.get(path)?.resolve(Response.json({ data, nextCursor }));
  waiting.delete(path);
}

let list: CursorList<number> | undefined;

function Rows({ path }: { path: string }) {
  list = useCursorList<number>(path);
  return null;
}

const show = (path: string): void => render(h(Rows, { path }), document.body);
const isShown = (...rows: readonly number[]) =>
  until(() => String(list?.rows) === String(rows), `${String(rows)}: ${String(list?.rows)}`);

test('the error of a later page ends with its list', async () => {
  show('/a');
  await respond('/a', [1], 'c1');
  await isShown(1);
  list?.more?.();
  await until(() => waiting.has('/a?cursor=c1'), 'the second page');
  waiting.get('/a?cursor=c1')?.resolve(new Response('', { status: 502 }));
  await until(() => list?.moreError?.status === 502, 'the error');
  show('/b');
  await respond('/b', [9], 'c9');
  await isShown(9);
  await until(() => list?.moreError === undefined, 'the end of the error');
  render(null, document.body);
});

test('new items do not remove a later page that is shown', async () => {
  show('/a');
  await respond('/a', [2, 1], 'c1');
  await isShown(2, 1);
  list?.renew();
  await respond('/a', [3, 2], 'c2');
  await isShown(3, 2);
  list?.more?.();
  await respond('/a?cursor=c2', [1]);
  await isShown(3, 2, 1);
  list?.renew();
  assert.equal(waiting.has('/a'), false);
  assert.deepEqual(list?.rows, [3, 2, 1]);
  render(null, document.body);
});

test('a later page that arrives after the list has changed is dropped', async () => {
  show('/a');
  await respond('/a', [1, 2], 'c1');
  await isShown(1, 2);
  list?.more?.();
  await respond('/a?cursor=c1', [3], 'c2');
  await isShown(1, 2, 3);
  // The page after the second one, while the first one is loaded again.
  list?.more?.();
  await until(() => waiting.has('/a?cursor=c2'), 'the third page');
  list?.first.reload();
  await respond('/a', [0, 1], 'c0');
  await isShown(0, 1);
  await respond('/a?cursor=c2', [4]);
  await until(() => list?.isLoadingMore === false, 'the end of the load');
  assert.deepEqual(list?.rows, [0, 1]);
  // A page of other filters.
  list?.more?.();
  await until(() => waiting.has('/a?cursor=c0'), 'the second page');
  show('/b');
  await respond('/b', [9]);
  await isShown(9);
  await respond('/a?cursor=c0', [2]);
  await until(() => list?.isLoadingMore === false, 'the end of the load');
  assert.deepEqual(list?.rows, [9]);
  render(null, document.body);
});
