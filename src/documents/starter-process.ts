/**
 * Entry file of the process that starts document workers for a server; `core/spawner.ts` contains
 * the reason. An abort while a file is being read kills a worker, so workers are started often.
 * This process stays small.
 *
 * It ends with the server, and its workers end with it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { lowerPriority } from '../core/lower-priority.ts';
import { siblingUrl } from '../core/sibling.ts';
import type { StarterResult, StarterOrder } from './worker-starter.ts';

/** Share of the memory limit for the heap; the rest is for buffers. */
const HEAP_SHARE = 0.6;

const workers = new Map<number, ChildProcess>();

process.once('disconnect', () => process.exit(0));
// Ctrl-C in a terminal signals the whole process group; the server stops this process itself.
process.on('SIGINT', () => undefined);
process.on('message', (message: unknown) => {
  const order = message as StarterOrder; // from the server, of the same version
  if (order.type === 'stop') workers.get(order.id)?.kill('SIGKILL');
  else start(order);
});

function start({ id, role, memoryMb }: StarterOrder & { type: 'start' }): void {
  const flags = [
    `--max-old-space-size=${Math.floor(memoryMb * HEAP_SHARE)}`,
    '--permission',
    '--allow-fs-read=*',
    '--allow-worker',
    '--no-warnings',
  ];
  const entry = fileURLToPath(siblingUrl(import.meta.url, 'worker-process'));
  const parameters = [role, String(memoryMb * 1_000_000), String(process.pid)];
  const worker = spawn(process.execPath, [...flags, entry, ...parameters], {
    env: {}, // workers must not inherit secrets of the server
    stdio: ['pipe', 'ignore', 'ignore', 'pipe'],
    windowsHide: true,
  });
  // Chats do not wait for the check of an image, which takes 0.3 s for 12 megapixels.
  if (role === 'image') lowerPriority(worker);
  workers.set(id, worker);
  worker.once('error', ({ message }) => reply({ type: 'failed', id, reason: message }));
  worker.once('exit', () => workers.delete(id));
  worker.once('spawn', () => {
    // The pipes of a child are sockets.
    const [input, , , output] = worker.stdio as unknown as readonly Socket[];
    reply({ type: 'input', id }, input);
    reply({ type: 'output', id }, output);
    // Sent after the pipes have been transferred and closed here.
    reply({ type: 'started', id });
  });
}

function reply(message: StarterResult, pipe?: Socket): void {
  if (process.connected) process.send?.(message, pipe);
}
