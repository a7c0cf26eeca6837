/** Names of accounts, keys and models, with the id as tooltip; the id if there is no name. */
import { useKeyNames, useModels } from '../lookups.ts';
import { listsKeys } from '../session.ts';
import { Copy, Id } from './values.tsx';

interface AccountNameProps {
  /** `null`: an anonymous request. */
  readonly id: string | null;
  readonly name: string;
}

/** The account of a wallet has its address as name until it is renamed. */
function isAddressOf(id: string, name: string): boolean {
  return id.toLowerCase() === `wallet:${name}`.toLowerCase();
}

export function AccountName({ id, name }: { id: string; name: string }) {
  if (name === '') return <Id value={id} ends={8} />;
  if (isAddressOf(id, name)) return <Id value={name} ends={8} />;
  return (
    <span class="text" title={id}>
      {name}
    </span>
  );
}

/** Opens the account in its drawer. */
export function AccountLink({ id, name }: AccountNameProps) {
  if (id === null) return <>anonymous</>;
  return (
    <a href={`/console/operator/accounts?open=${encodeURIComponent(id)}`}>
      <AccountName id={id} name={name} />
    </a>
  );
}

/** The description of a key. `known`: descriptions of keys of another account. */
export function KeyName({ id, known }: { id: string; known?: ReadonlyMap<string, string> }) {
  const own = useKeyNames(listsKeys.value);
  const name = known?.get(id) ?? own.get(id);
  if (name === undefined) return <Id value={id} ends={8} />;
  return (
    <span class="text" title={id}>
      {name}
    </span>
  );
}

export function ModelName({ id }: { id: string }) {
  const name = useModels().find((model) => model.id === id)?.model_spec.name ?? id;
  return (
    <span class={name === id ? 'model' : 'text'} title={id}>
      {name}
    </span>
  );
}

/** A name with a button that copies its id. */
export function WithId({ id, children }: { id: string; children: preact.ComponentChildren }) {
  return (
    <>
      {children} <Copy text={id} label="Copy id" />
    </>
  );
}
