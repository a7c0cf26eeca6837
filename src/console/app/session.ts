/** Who is signed in; asked of the server at the start, and changed by signing in and out. */
import { computed, signal } from '@preact/signals';
import { call, onSignedOut, useCsrfToken } from './api.ts';
import type { Session, SignInChallenge } from './shapes.ts';

interface ConsoleResponse {
  readonly session: Session | null;
  readonly wallet: SignInChallenge | null;
}

/** `undefined` until the server has answered. */
export const session = signal<Session | null | undefined>(undefined);
/** Why the last session ended, for the sign-in page. */
export const endedBecause = signal<string | undefined>(undefined);
/** Keys and the statement are for ADMIN keys and wallets. */
export const managesAccount = computed(
  () => session.value?.kind === 'wallet' || session.value?.keyKind === 'ADMIN',
);
export const isOperator = computed(() => session.value?.isOperator === true);

function take(next: Session | null): void {
  useCsrfToken(next?.csrfToken);
  session.value = next;
}

onSignedOut(() => leave('Your session has ended. Sign in again to go on.'));

/** The page forgets who it was for. */
export function leave(reason?: string): void {
  if (session.peek() === null) return;
  endedBecause.value = reason;
  take(null);
}

/** Asks who is signed in. Throws when the server cannot be reached. */
export async function findSession(): Promise<void> {
  const { session: found } = await call<ConsoleResponse>('/console/session');
  take(found);
}

/** What a wallet has to sign now; `null` where the service takes no wallets. */
export async function signInChallenge(): Promise<SignInChallenge | null> {
  return (await call<ConsoleResponse>('/console/session')).wallet;
}

async function signIn(headers: Readonly<Record<string, string>>): Promise<void> {
  const answer = await call<{ session: Session }>('/console/session', { method: 'POST', headers });
  endedBecause.value = undefined;
  take(answer.session);
}

export function signInByKey(key: string): Promise<void> {
  return signIn({ authorization: `Bearer ${key}` });
}

/** `header`: base64 of the signed challenge. */
export function signInByWallet(header: string): Promise<void> {
  return signIn({ 'sign-in-with-x': header });
}

/** `token`: of the link that the terminal printed. */
export async function signInByLink(token: string): Promise<void> {
  const body = { token };
  const answer = await call<{ session: Session }>('/console/session/link', {
    method: 'POST',
    body,
  });
  endedBecause.value = undefined;
  take(answer.session);
}

export async function signOut(): Promise<void> {
  await call('/console/session', { method: 'DELETE' });
  leave('You are signed out.');
}
