/**
 * Validates every response of a test server against its own OpenAPI document. An error fails the
 * call that stops the server; if no call does, it fails the process at its end. The order of the
 * test files does not matter.
 */
import assert from 'node:assert/strict';
import type { Server } from 'node:http';
import type { OpenApiDocument } from '../../src/http/openapi/openapi.ts';
import type { Route } from '../../src/http/route.ts';
import { type ResponseChecker, checkerOf } from './response-checker.ts';
import { copyResponse } from './sent-responses.ts';

/** Maximum number of misfitting responses that a failure shows. */
const MAX_SHOWN = 20;

/** Responses of one server. */
export interface ResponseCheck {
  /** Number of responses checked so far. */
  readonly checked: number;
  /** Throws if any response since the last call does not fit the OpenAPI document. */
  assertFitting(): void;
}

/** Parts of an `App` that the check needs. */
export interface CheckedApp {
  readonly server: { readonly server: Server };
  readonly routes: readonly Route[];
  openApi(): OpenApiDocument;
}

/** Validates every response of the app from now on. Its document depends on the routes and on `settings`. */
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

/** Does not reference the app, so that it can be garbage collected. */
function askedAtExit(): Set<string> {
  const misfits = new Set<string>();
  askAtExit(() => assertNone(misfits));
  return misfits;
}

/** Throws for these errors, and clears them. */
export function assertNone(misfits: Set<string>): void {
  const shown = [...misfits].slice(0, MAX_SHOWN).join('\n');
  const count = misfits.size;
  misfits.clear();
  assert.equal(count, 0, `${count} answers are not as the OpenAPI document says:\n${shown}`);
}

/** Running checks, which are read again when the process ends. */
const begun: (() => void)[] = [];

/**
 * An error of a server that is not stopped, or of a response after its stop, fails the process,
 * because hooks have run by then.
 */
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
