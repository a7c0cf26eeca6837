/**
 * Validates the responses of a server in its own process against its OpenAPI document. The process
 * only writes them to a file, to stay fast; they are validated after it has ended.
 */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { get } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import type { OpenApiDocument } from '../../src/http/openapi/openapi.ts';
import { checkerFor } from './response-checker.ts';
import { askAtExit, assertNone } from './check-responses.ts';
import type { SentResponse } from './sent-responses.ts';
import { ANSWERS_FILE, type WrittenResponse } from './write-responses.ts';

const WRITER = new URL('write-responses.ts', import.meta.url).href;

/** A document of some hundred kilobytes takes as long as half a start. By what servers start with. */
const documents = new Map<string, OpenApiDocument>();
/** Settings that differ between servers but do not affect the document. */
const OWN = /^database: .*$|(?<=127\.0\.0\.1:)\d+/gm;

export interface ProcessResponses {
  /** Environment variables for the process. */
  readonly env: Readonly<Record<string, string>>;
  /**
   * Reads the document of the server with this base URL. Another process with equal `settings` has
   * the same document, which is not requested again.
   */
  follow(url: string, settings?: string): Promise<void>;
  /** Throws for what did not fit; of a process that has ended. */
  assertFitting(): void;
}

export function processResponses(): ProcessResponses {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-answers-'));
  const file = join(folder, 'answers');
  let document: OpenApiDocument | undefined;
  let isAsked = false;
  let basePath = '';
  const assertFitting = (): void => {
    const answers = readResponses(file);
    rmSync(folder, { recursive: true, force: true });
    if (document === undefined) return;
    assert.ok(
      answers.length > 0 || !isAsked,
      'The process has not even written the answer with its document',
    );
    const checker = checkerFor(document);
    document = undefined;
    const misfits = answers.flatMap((answer) =>
      checker.check(answer, basePath).map((misfit) => `${answer.method} ${answer.path}: ${misfit}`),
    );
    assertNone(new Set(misfits));
  };
  askAtExit(assertFitting);
  return {
    assertFitting,
    env: { [ANSWERS_FILE]: file, NODE_OPTIONS: `--import=${WRITER}` },
    follow: async (url, settings) => {
      const key = settings?.replaceAll(OWN, '');
      document = key === undefined ? undefined : documents.get(key);
      isAsked = document === undefined;
      document ??= await documentOf(url);
      if (key !== undefined) documents.set(key, document);
      basePath = new URL(url).pathname;
    },
  };
}

/** With a connection of its own, which is closed at once. */
async function documentOf(url: string): Promise<OpenApiDocument> {
  const body = await new Promise<string>((resolve, reject) => {
    get(`${url}/openapi.json`, { agent: false }, (response) => {
      text(response).then(resolve, reject);
    }).once('error', reject);
  });
  return JSON.parse(body) as OpenApiDocument; // the test of the document says that it is one
}

/** A line that is not ended was being written when the process was killed. */
function readResponses(file: string): SentResponse[] {
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, 'utf8').split('\n').slice(0, -1);
  return lines.map((line) => {
    const written = JSON.parse(line) as WrittenResponse; // written so by `write-responses.ts`
    return { ...written, body: Buffer.from(written.body, 'base64') };
  });
}
