/** The page of an invitation: shows it, and accepts it by a sign-in at a provider. */
import { useEffect, useState } from 'preact/hooks';
import { call } from '../api.ts';
import { Failure, Loading } from '../parts/loaded.tsx';
import { Brand } from '../parts/brand.tsx';
import { useTitle } from '../parts/page-head.tsx';
import { Time } from '../parts/values.tsx';
import { useResource } from '../resource.ts';
import type { Invitation } from '../shapes.ts';
import { ProviderButtons } from './provider-buttons.tsx';
import { ROLE_WORDS } from './roles.ts';

export const JOIN_PAGE = '/console/join';
/** Kept for this tab, so that the page can be reloaded. */
const TOKEN = 'invitation';

/** Removes the token after `#` from the address and its history entry. */
function takeToken(): string {
  const token = location.hash.slice(1);
  if (token !== '') {
    sessionStorage.setItem(TOKEN, token);
    history.replaceState(null, '', location.pathname);
  }
  return sessionStorage.getItem(TOKEN) ?? '';
}

export function Join() {
  useTitle('Invitation');
  const [token, setToken] = useState(takeToken);
  useEffect(() => {
    const change = (): void => setToken(takeToken());
    addEventListener('hashchange', change);
    return () => removeEventListener('hashchange', change);
  }, []);
  const shown = useResource(token, () =>
    call<{ data: Invitation }>('/console/invitation', { method: 'POST', body: { token } }),
  );
  return (
    <main class="alone">
      <Brand />
      <div class="card sign-in">
        <h1>Invitation</h1>
        {shown.error !== undefined && <Failure error={shown.error} retry={shown.reload} />}
        {shown.isLoading && <Loading />}
        {shown.data !== undefined && (
          <>
            <p>
              Join the account <strong class="text">{shown.data.data.accountName}</strong> with the
              role <strong>{shown.data.data.role}</strong>: {ROLE_WORDS[shown.data.data.role]}.
            </p>
            {shown.data.data.email !== null && (
              <p>
                Sign in with the address <strong class="text">{shown.data.data.email}</strong>.
              </p>
            )}
            <ProviderButtons pending={{ invitation: token }} />
            <p class="hint">
              The link is valid once, until <Time iso={shown.data.data.expiresAt} />.
            </p>
          </>
        )}
      </div>
    </main>
  );
}
