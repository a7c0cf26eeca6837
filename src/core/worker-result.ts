/**
 * Runs work in a worker thread. The module of a worker has no top-level await: if its thread is
 * terminated while the evaluation of such a module ends, V8 aborts the whole process.
 */
import { parentPort, Worker } from 'node:worker_threads';

/** Starts a worker that calls `postResult`; resolves to its result. The thread ends by itself. */
export function workerResult<T>(entry: URL, workerData: unknown): Promise<T> {
  const worker = new Worker(entry, { workerData, env: {} });
  return new Promise<T>((resolve, reject) => {
    worker.once('message', resolve);
    worker.once('error', reject);
    worker.once('exit', () => reject(new Error('The worker ended without a result')));
  });
}

/** In a worker: sends the result of `work`. A rejection ends the worker with this error. */
export function postResult(work: () => unknown): void {
  const post = (result: unknown): void => {
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a worker thread, not a window
    parentPort?.postMessage(result);
  };
  void Promise.resolve().then(work).then(post);
}
