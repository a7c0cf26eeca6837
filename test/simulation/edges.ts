/**
 * Replaces what a program cannot predict by a world: time, timers, random numbers, sockets, the flush
 * of files and worker threads. Called once, before the product is loaded; the modules of Node.js
 * then have the replacements for every import. Everything else of the process stays real.
 */
import crypto from 'node:crypto';
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import net from 'node:net';
import perfHooks from 'node:perf_hooks';
import sqlite from 'node:sqlite';
import timers from 'node:timers';
import timersPromises from 'node:timers/promises';
import workerThreads from 'node:worker_threads';
import {
  SimulatedCheckpoint,
  diskFull,
  flushLater,
  openNow,
  openedFile,
  prepareOn,
} from './disk.ts';
import { WorldSocket, connectTo, listenOn } from './network.ts';
import { type Machine, type Timer, world } from './world.ts';

/** The period of the timer that all connections of undici share, whichever machine started it. */
const SHARED_TICK_MS = 499;

const ED25519_HEADER = Buffer.from('302e020100300506032b657004220420', 'hex');

type Callback = (...parameters: unknown[]) => void;

/** The result of `setTimeout`. */
class Timeout {
  #timer: Timer;
  readonly #start: () => Timer;

  constructor(start: () => Timer) {
    this.#start = start;
    this.#timer = start();
  }

  refresh(): this {
    this.#timer.cancel();
    this.#timer = this.#start();
    return this;
  }

  close(): void {
    this.#timer.cancel();
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }
}

function ownerOf(callback: Callback, ms: number): Machine {
  const isShared = ms === SHARED_TICK_MS && callback.name === 'onTick';
  return isShared ? world().outside : world().here;
}

function startTimeout(callback: Callback, ms = 1, ...parameters: unknown[]): Timeout {
  const machine = ownerOf(callback, ms);
  const run = (): void => callback(...parameters);
  return new Timeout(() => world().schedule(Math.max(1, ms), run, machine));
}

function startInterval(callback: Callback, ms = 1, ...parameters: unknown[]): Timeout {
  const timeout = startTimeout(() => {
    timeout.refresh();
    callback(...parameters);
  }, ms);
  return timeout;
}

function startImmediate(callback: Callback, ...parameters: unknown[]): Timeout {
  return new Timeout(() => world().immediate(() => callback(...parameters)));
}

function stop(timeout: unknown): void {
  if (timeout instanceof Timeout) timeout.close();
}

function sleepFor<T>(ms = 1, value?: T, { signal }: { signal?: AbortSignal } = {}): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(new DOMException('The operation was aborted', 'AbortError'));
    if (signal?.aborted === true) return abort();
    const timer = world().schedule(Math.max(1, ms), () => {
      signal?.removeEventListener('abort', abort);
      resolve(value as T); // without a value `T` is undefined
    });
    signal?.addEventListener('abort', () => (timer.cancel(), abort()), { once: true });
  });
}

const OWN_TIMERS = {
  setTimeout: startTimeout,
  setInterval: startInterval,
  setImmediate: startImmediate,
  clearTimeout: stop,
  clearInterval: stop,
  clearImmediate: stop,
};

/** A whole number, as from a real clock. */
function wallMs(): number {
  return Math.floor(world().nowMs) + world().here.skewMs;
}

/** `Date` with the time of the machine whose code runs. */
const RealDate = Date;
const WorldDate = new Proxy(RealDate, {
  construct: (target, parameters, newTarget) =>
    Reflect.construct(target, parameters.length === 0 ? [wallMs()] : parameters, newTarget) as Date,
  apply: () => new RealDate(wallMs()).toString(),
  get: (target, name, receiver) =>
    name === 'now' ? wallMs : (Reflect.get(target, name, receiver) as unknown),
});

/** Assigns replacements over their originals, which have the same signatures. */
function replace(target: object, replacements: Readonly<Record<string, unknown>>): void {
  for (const [name, value] of Object.entries(replacements)) {
    Object.defineProperty(target, name, { value, configurable: true, writable: true });
  }
}

/** Promises of the file system, kept by its synchronous functions: the thread pool has no order. */
function immediateFiles(): Record<string, unknown> {
  const replaced: Record<string, unknown> = {};
  for (const name of Object.keys(fs.promises)) {
    const work: unknown = Reflect.get(fs, `${name}Sync`);
    if (name === 'open' || typeof work !== 'function') continue;
    replaced[name] = async (...parameters: unknown[]) =>
      Reflect.apply(work, fs, parameters) as unknown;
  }
  return replaced;
}

/** A function for streams of files, which calls back at once. A full disk takes nothing more. */
function streamFile(name: 'open' | 'read' | 'write' | 'close') {
  const work = name === 'open' ? openedFile : fs[`${name}Sync`];
  return (...parameters: unknown[]): void => {
    const done = parameters.pop() as Callback; // the last parameter, as of all functions with callbacks
    if (name === 'write' && world().weather.isFull) return done(diskFull(), 0);
    done(null, Reflect.apply(work, fs, parameters), parameters[1]);
  };
}

const STREAM_FILES = {
  open: streamFile('open'),
  read: streamFile('read'),
  write: streamFile('write'),
  close: streamFile('close'),
};

const { verify } = crypto;
const { subtle } = globalThis.crypto;
const importKey = subtle.importKey.bind(subtle) as (...parameters: unknown[]) => Promise<CryptoKey>;

/** The part of `crypto.subtle` that clients of Solana need, without threads. All keys are Ed25519. */
const IMMEDIATE_CRYPTO = {
  // Only the value of an extractable key can be used here.
  importKey: async (format: string, data: unknown, name: unknown, _: boolean, uses: unknown) =>
    await importKey(format, data, name, true, uses),
  digest: async (name: string, data: Uint8Array) =>
    bufferOf(crypto.createHash(name.replace('-', '')).update(data).digest()),
  exportKey: async (format: string, key: CryptoKey) => {
    const exported = crypto.KeyObject.from(key).export({ format: 'jwk' });
    return format === 'jwk' ? exported : bufferOf(Buffer.from(exported.x ?? '', 'base64url'));
  },
  sign: async (_name: string, key: CryptoKey, data: Uint8Array) =>
    bufferOf(crypto.sign(null, data, crypto.KeyObject.from(key))),
  verify: async (_name: string, key: CryptoKey, signature: Uint8Array, data: Uint8Array) =>
    verify(null, data, crypto.KeyObject.from(key), signature),
};

function verifyNow(
  algorithm: null,
  data: Buffer,
  key: crypto.KeyObject,
  signature: Buffer,
  done?: (error: null, isValid: boolean) => void,
): boolean {
  const isValid = verify(algorithm, data, key, signature);
  done?.(null, isValid);
  return isValid;
}

function bufferOf(bytes: Buffer): ArrayBuffer {
  return Uint8Array.from(bytes).buffer;
}

export function replaceEdges(): void {
  // Node opens these pipes at their first use, and they are real.
  for (const output of [process.stdout, process.stderr]) output.on('error', () => undefined);
  replace(globalThis, { ...OWN_TIMERS, Date: WorldDate });
  replace(timers, OWN_TIMERS);
  replace(timersPromises, { setTimeout: sleepFor });
  replace(performance, { now: () => world().nowMs });
  replace(perfHooks, { monitorEventLoopDelay: emptyHistogram });
  replace(AbortSignal, {
    timeout: (ms: number) => {
      const controller = new AbortController();
      world().schedule(ms, () => {
        controller.abort(new DOMException('The operation timed out', 'TimeoutError'));
      });
      return controller.signal;
    },
  });
  const randomUUID = (): string => world().random.uuid();
  replace(Math, { random: () => world().otherRandom.fraction() });
  replace(crypto, {
    randomBytes: (size: number) => world().random.bytes(size),
    randomUUID,
    generateKeyPairSync: keyPair,
    verify: verifyNow,
  });
  replace(globalThis.crypto, {
    randomUUID,
    getRandomValues: (into: Uint8Array) => (into.set(world().random.bytes(into.length)), into),
  });
  replace(subtle, IMMEDIATE_CRYPTO);
  replace(fs.promises, { ...immediateFiles(), open: openNow });
  const { ReadStream, WriteStream } = fs;
  replace(fs, {
    fdatasync: flushLater,
    createReadStream: (path: string, options?: object) =>
      Reflect.construct(ReadStream, [path, { ...options, fs: STREAM_FILES }]) as fs.ReadStream,
    createWriteStream: (path: string, options?: object) =>
      Reflect.construct(WriteStream, [path, { ...options, fs: STREAM_FILES }]) as fs.WriteStream,
  });
  replace(sqlite.DatabaseSync.prototype, {
    prepare(this: sqlite.DatabaseSync, sql: string) {
      return prepareOn(this, sql);
    },
  });
  replace(workerThreads, { Worker: SimulatedCheckpoint });
  replace(net, { connect: connectTo, createConnection: connectTo, Socket: WorldSocket });
  replace(net.Server.prototype, {
    listen(this: net.Server, ...parameters: unknown[]) {
      return listenOn(this, parameters);
    },
  });
  syncBuiltinESMExports();
}

/** The real one has a real timer, which a server that crashes would leave behind. */
function emptyHistogram(): object {
  const doNothing = (): boolean => true;
  return Object.assign(perfHooks.createHistogram(), { enable: doNothing, disable: doNothing });
}

/** The private key is the seed itself, after the header of its format. */
function keyPair(type: string): { privateKey: crypto.KeyObject } {
  if (type !== 'ed25519') throw new Error(`The simulation makes no key ${type}`);
  const key = Buffer.concat([ED25519_HEADER, world().random.bytes(32)]);
  return { privateKey: crypto.createPrivateKey({ key, format: 'der', type: 'pkcs8' }) };
}
