/** The current session: loaded at the start, changed by signing in and out. */
import { computed, signal } from '@preact/signals';
import { type CallOptions, call, errorOf, onSignedOut, send, useCsrfToken } from './api.ts';
import { forgetHistory } from './request-history.ts';
import type { ConsoleResponse, Session, SignInChallenge } from './shapes.ts';

export const SESSION_ENDED = 'Your session has ended. Sign in again to continue.';

/** `undefined` until the server has responded. */
export const session = signal<Session | null | undefined>(undefined);
/** Why the last session ended, for the sign-in page. */
export const endedBecause = signal<string | undefined>(undefined);
/** Providers of the company sign-in. */
export const providers = signal<ConsoleResponse['signIn']>([]);

/** Whether the session has a right; pages show only what it may do. */
export function can(right: Session['rights'][number]): boolean {
  return session.value?.rights.includes(right) === true;
}

/** All members may read the list of keys, but not a session of an INFERENCE key. */
export const listsKeys = computed(() => session.value?.member != null || can('develop'));
export const isOperator = computed(() => session.value?.isOperator === true);

/** Identifies the person of the last session of this page. */
let lastPerson: string | undefined;

function personOf({ accountId, keyId, wallet, member }: Session): string {
  return [accountId, keyId, wallet, member?.id].join(' ');
}

function take(next: Session | null): void {
  useCsrfToken(next?.csrfToken);
  session.value = next;
  if (next !== null) lastPerson = personOf(next);
}

onSignedOut(() => leave(SESSION_ENDED));

/** Ends the session in this page. */
export function leave(reason?: string): void {
  if (session.peek() === null) return;
  endedBecause.value = reason;
  take(null);
}

/** Loads the session. Throws if the server cannot be reached. */
export async function findSession(): Promise<void> {
  const { session: found, signIn: offered } = await call<ConsoleResponse>('/console/session');
  providers.value = offered;
  take(found);
}

/** The challenge that a wallet signs; `null` if the service does not support wallets. */
export async function signInChallenge(): Promise<SignInChallenge | null> {
  return (await call<ConsoleResponse>('/console/session')).wallet;
}

async function signIn(path: string, options: CallOptions): Promise<void> {
  const response = await send(path, { method: 'POST', ...options });
  if (!response.ok) throw await errorOf(response, false);
  const { session: next } = (await response.json()) as { session: Session }; // documented
  // The page contains data of the last person, such as the conversation of the playground, and so does
  // the history after a session that has expired.
  if (lastPerson !== undefined && lastPerson !== personOf(next)) {
    forgetHistory();
    location.reload();
    return new Promise<never>(() => undefined);
  }
  endedBecause.value = undefined;
  take(next);
}

export function signInByKey(key: string): Promise<void> {
  return signIn('/console/session', { headers: { authorization: `Bearer ${key}` } });
}

/** `header`: base64 of the signed challenge. */
export function signInByWallet(header: string): Promise<void> {
  return signIn('/console/session', { headers: { 'sign-in-with-x': header } });
}

/** `token`: from the link that `farebox sign-in` prints. */
export function signInByLink(token: string): Promise<void> {
  return signIn('/console/session/link', { body: { token } });
}

/** A sign-in at a provider, stored in this tab while the browser is there. */
export interface PendingSignIn {
  /** Page of the console to return to. */
  readonly next?: string | undefined;
  /** Token of an invitation. */
  readonly invitation?: string | undefined;
}

const PENDING = 'pending-sign-in';

/** Leaves this page for the one of the provider. */
export async function beginProviderSignIn(id: string, pending: PendingSignIn): Promise<void> {
  const path = `/console/sign-in/${encodeURIComponent(id)}`;
  const { url } = await call<{ url: string }>(path, { method: 'POST' });
  sessionStorage.setItem(PENDING, JSON.stringify(pending));
  location.assign(url);
}

/** Completes a sign-in with the query of the redirect; returns the page that has started it. */
export async function completeProviderSignIn(id: string, query: string): Promise<string> {
  const { next = '', invitation } = pendingSignIn();
  sessionStorage.removeItem(PENDING);
  const path = `/console/sign-in/${encodeURIComponent(id)}/callback`;
  await signIn(path, { body: { query, invitation } });
  return next;
}

function pendingSignIn(): PendingSignIn {
  // This page has written it.
  return JSON.parse(sessionStorage.getItem(PENDING) ?? '{}') as PendingSignIn;
}

/** Continues in another account of the person. */
export async function changeAccount(accountId: string): Promise<void> {
  await call('/console/session/account', { method: 'POST', body: { accountId } });
  location.assign('/console');
}

/** Also deletes the history of the playground. */
export async function signOut(): Promise<void> {
  const path = '/console/session';
  const { signOutUrl } = await call<{ signOutUrl: string | null }>(path, { method: 'DELETE' });
  forgetHistory();
  leave('You are signed out.');
  if (signOutUrl !== null) location.assign(signOutUrl);
}
