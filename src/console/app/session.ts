/** The current session: loaded at the start, changed by signing in and out. */
import { computed, signal } from '@preact/signals';
import { type CallOptions, call, onSignedOut, useCsrfToken } from './api.ts';
import type { ConsoleResponse, Session, SignInChallenge } from './shapes.ts';

export const SESSION_ENDED = 'Your session has ended. Sign in again to continue.';

/** `undefined` until the server has responded. */
export const session = signal<Session | null | undefined>(undefined);
/** Why the last session ended, for the sign-in page. */
export const endedBecause = signal<string | undefined>(undefined);
/** Only ADMIN keys and wallets may manage keys and read the statement. */
export const managesAccount = computed(
  () => session.value?.kind === 'wallet' || session.value?.keyKind === 'ADMIN',
);
export const isOperator = computed(() => session.value?.isOperator === true);

function take(next: Session | null): void {
  useCsrfToken(next?.csrfToken);
  session.value = next;
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
  const { session: found } = await call<ConsoleResponse>('/console/session');
  take(found);
}

/** The challenge that a wallet signs; `null` if the service does not support wallets. */
export async function signInChallenge(): Promise<SignInChallenge | null> {
  return (await call<ConsoleResponse>('/console/session')).wallet;
}

async function signIn(path: string, options: CallOptions): Promise<void> {
  const response = await call<{ session: Session }>(path, { method: 'POST', ...options });
  endedBecause.value = undefined;
  take(response.session);
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

export async function signOut(): Promise<void> {
  await call('/console/session', { method: 'DELETE' });
  leave('You are signed out.');
}
