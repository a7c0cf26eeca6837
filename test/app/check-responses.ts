/**
 * Holds every answer that a test's server gives against the OpenAPI document of that very server.
 * What does not fit fails whatever stops the server; what nobody stopped fails the process when it
 * ends. So neither the order of files nor how they are run matters.
 */
import assert from 'node:assert/strict';
import type { Server } from 'node:http';
import type { OpenApiDocument } from '../../src/http/openapi/openapi.ts';
import type { Route } from '../../src/http/route.ts';
import { type ResponseChecker, checkerOf } from './response-checker.ts';
import { copyResponse } from './sent-responses.ts';

/** Most misfits that a failure shows. */
const MAX_SHOWN = 20;

/** The answers of one server. */
export interface ResponseCheck {
  /** How many were checked so far. */
  readonly checked: number;
  /** Throws once for what did not fit since the last call. */
  assertFitting(): void;
}

/** What is checked of an `App`. */
export interface CheckedApp {
  readonly server: { readonly server: Server };
  readonly routes: readonly Route[];
  openApi(): OpenApiDocument;
}

/**
 * Checks every answer of the app from here on. `settings` are those that its document is made of,
 * beside its routes.
 */
export function checkResponses(
  app: CheckedApp,
  basePath: string,
  settings: unknown,
): ResponseCheck {
  const misfits = askedAtExit();
  let checker: ResponseChecker | undefined;
  let checked = 0;
  app.server.server.prependListener('request', (request, response) => {
    copyResponse(request, response, (answer) => {
      checker ??= checkerOf(app, settings);
      checked += 1;
      for (const misfit of checker.check(answer, basePath)) {
        misfits.add(`${answer.method} ${answer.path}: ${misfit}`);
      }
    });
  });
  return {
    get checked() {
      return checked;
    },
    assertFitting: () => assertNone(misfits),
  };
}

/** Apart from the app, which can be forgotten before the process ends. */
function askedAtExit(): Set<string> {
  const misfits = new Set<string>();
  askAtExit(() => assertNone(misfits));
  return misfits;
}

/** Throws for these misfits, and forgets them. */
export function assertNone(misfits: Set<string>): void {
  const shown = [...misfits].slice(0, MAX_SHOWN).join('\n');
  const count = misfits.size;
  misfits.clear();
  assert.equal(count, 0, `${count} answers are not as the OpenAPI document says:\n${shown}`);
}

/** Checks that began; each is asked again when the process ends. */
const begun: (() => void)[] = [];

/** A server that no test stops, or that answers after, fails the process: hooks have run by then. */
export function askAtExit(assertFitting: () => void): void {
  begun.push(assertFitting);
  if (begun.length > 1) return;
  process.once('exit', () => {
    for (const assertOne of begun) {
      try {
        assertOne();
      } catch (error) {
        // Thrown here it would hide the others.
        console.error(error);
        process.exitCode = 1;
      }
    }
  });
}
