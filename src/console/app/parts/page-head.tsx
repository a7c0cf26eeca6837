/** The head of a page: its name, what it is for, and what can be done. Names the tab too. */
import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { TITLE } from '../page-facts.ts';

interface PageHeadProps {
  readonly title: string;
  readonly lead?: ComponentChildren;
  /** Buttons. */
  readonly children?: ComponentChildren;
}

export function PageHead({ title, lead, children }: PageHeadProps) {
  useTitle(title);
  return (
    <header class="head">
      <div>
        <h1>{title}</h1>
        {lead !== undefined && <p class="lead">{lead}</p>}
      </div>
      {children !== undefined && <div class="actions">{children}</div>}
    </header>
  );
}

export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · ${TITLE}`;
  }, [title]);
}
