use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{
    Attribute, Error, Expr, ExprLit, FnArg, GenericArgument, ItemFn, Lit, Meta, Pat, PatType,
    PathArguments, Result, ReturnType, Type,
};

use crate::options::ToolOptions;

/// Writes the code of the tool, or a compile error at its place.
pub(crate) fn expand(
    options: TokenStream,
    function: TokenStream,
    home: &TokenStream,
) -> TokenStream {
    let written = ToolOptions::parse(options).and_then(|options| {
        let function = syn::parse2::<ItemFn>(function)?;
        let home = options.home.as_ref().map_or_else(|| home.clone(), |home| quote!(#home));
        write(&options, function, &home)
    });
    written.unwrap_or_else(Error::into_compile_error)
}

fn write(options: &ToolOptions, mut function: ItemFn, home: &TokenStream) -> Result<TokenStream> {
    check_signature(&function)?;
    if options.probe_is_final && options.probe.is_none() {
        let why = "`probe_is_final` says of a probe that its word is final: add `probe = function`";
        return Err(Error::new_spanned(&function.sig.ident, why));
    }
    let parameters = Parameters::take(&mut function)?;
    let description = doc_text(&function.attrs);
    if description.is_empty() {
        return Err(Error::new_spanned(
            &function.sig.ident,
            "a tool needs a doc comment: it is the description the model reads",
        ));
    }

    let ident = &function.sig.ident;
    let visibility = &function.vis;
    let name = options.name.clone().unwrap_or_else(|| ident.to_string());
    let docs = function.attrs.iter().filter(|attribute| attribute.path().is_ident("doc"));
    let (fields, names, arguments) = (&parameters.fields, &parameters.names, &parameters.arguments);
    let capabilities = options.capabilities.iter().map(|text| quote!(.capability(#text)));
    let state_type = parameters.state.as_ref().map(|state| {
        quote! {
            fn state_type(&self) -> ::std::option::Option<#home::StateType> {
                ::std::option::Option::Some(#home::StateType::for_type::<#state>())
            }
        }
    });
    let flags = [
        (options.idempotent, quote!(.idempotent())),
        (options.exploratory, quote!(.exploratory())),
        (options.approval.is_some(), quote!(.approval())),
        (options.probe.is_some(), quote!(.probe())),
        (options.probe_is_final, quote!(.probe_is_final())),
    ]
    .into_iter()
    .filter_map(|(set, call)| set.then_some(call));
    let once = options.once.as_ref().map(|pointer| quote!(.once(#pointer)));
    let approval = options.approval.as_ref();
    let expiry = approval.and_then(|approval| approval.expires_after_ms);
    let expiry = expiry.map(|ms| quote!(.expires_after(::std::time::Duration::from_millis(#ms))));
    let approvers = approval.map(|approval| &approval.approvers).filter(|names| !names.is_empty());
    let approvers = approvers.map(|names| quote!(.approvers([#(#names),*])));
    let timeout =
        options.timeout_ms.map(|ms| quote!(.timeout(::std::time::Duration::from_millis(#ms))));
    let probe = options.probe.as_ref().map(|probe| {
        quote! {
            async fn probe(
                &self,
                arguments: &#home::Arguments,
                context: &#home::ToolContext,
            ) -> ::std::result::Result<#home::Probe, #home::ToolError> {
                let _ = context;
                let Arguments { #(#names),* } = private::decode_arguments(arguments)?;
                private::encode_probe(#probe(#(#arguments),*).await)
            }
        }
    });
    let serde_crate = format!("{home}::__private::serde").replace(' ', "");
    let schemars_crate = format!("{home}::__private::schemars").replace(' ', "");

    let mut body = function.clone();
    body.attrs.retain(|attribute| !attribute.path().is_ident("doc"));
    body.vis = syn::Visibility::Inherited;
    body.sig.ident = syn::Ident::new("run", ident.span());

    // A pattern cannot bind the name of a unit struct in scope, which this and other tools are; that of a function it
    // can.
    let bindable = &parameters.bound;

    Ok(quote! {
        #(#docs)*
        #[allow(non_camel_case_types, reason = "the tool is named as its function")]
        #[derive(Debug, Clone, Copy, Default)]
        #visibility struct #ident;

        const _: () = {
            use #home::__private as private;

            #(#[allow(dead_code, non_snake_case, reason = "it only makes the name bindable")] fn #bindable() {})*

            #[derive(private::serde::Deserialize, private::schemars::JsonSchema)]
            #[serde(crate = #serde_crate, deny_unknown_fields)]
            #[schemars(crate = #schemars_crate)]
            struct Arguments { #(#fields,)* }

            static SPEC: ::std::sync::LazyLock<#home::ToolSpec> = ::std::sync::LazyLock::new(|| {
                #home::ToolSpec::new(
                    #name,
                    #description,
                    private::generate_schema::<Arguments>(),
                ) #(#capabilities)* #(#flags)* #expiry #approvers #timeout #once
            });

            #body

            #[private::async_trait]
            impl #home::Tool for #ident {
                fn spec(&self) -> &#home::ToolSpec {
                    &SPEC
                }

                fn checks_arguments(&self) -> bool {
                    true
                }

                #state_type

                #probe

                async fn call(
                    &self,
                    arguments: &#home::Arguments,
                    context: &#home::ToolContext,
                ) -> ::std::result::Result<#home::JsonText, #home::ToolError> {
                    let _ = context;
                    let Arguments { #(#names),* } = private::decode_arguments(arguments)?;
                    private::encode_output(run(#(#arguments),*).await)
                }
            }
        };
    })
}

fn check_signature(function: &ItemFn) -> Result<()> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        return Err(Error::new_spanned(signature.fn_token, "a tool is an `async fn`"));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new_spanned(&signature.generics, "a tool has no type parameters"));
    }
    const RETURNS: &str = "a tool returns a `Result`, such as `Result<String, ToolError>`";
    match &signature.output {
        ReturnType::Default => Err(Error::new_spanned(&signature.ident, RETURNS)),
        ReturnType::Type(_, returned) if is_value(returned) => {
            Err(Error::new_spanned(returned, RETURNS))
        }
        ReturnType::Type(..) => Ok(()),
    }
}

/// Returns whether a type is certainly not a `Result`. Any other name may be an alias of one.
fn is_value(returned: &Type) -> bool {
    const VALUES: [&str; 18] = [
        "bool", "char", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64",
        "usize", "Option", "String", "Value", "Vec", "HashMap",
    ];
    match returned {
        Type::Path(path) => {
            path.path.segments.last().is_some_and(|it| VALUES.iter().any(|name| it.ident == name))
        }
        Type::Array(_) | Type::Reference(_) | Type::Tuple(_) => true,
        _ => false,
    }
}

/// The parameters in three forms: fields of the arguments struct, names to destructure it, and arguments of the call.
#[derive(Default)]
struct Parameters {
    fields: Vec<TokenStream>,
    names: Vec<TokenStream>,
    arguments: Vec<TokenStream>,
    /// Names that the function's parameters bind.
    bound: Vec<syn::Ident>,
    /// Type of the state parameter.
    state: Option<Type>,
}

impl Parameters {
    /// Reads the parameters and removes their doc comments from the function.
    fn take(function: &mut ItemFn) -> Result<Self> {
        let mut parameters = Self::default();
        for input in &mut function.sig.inputs {
            let FnArg::Typed(PatType { attrs, pat, ty, .. }) = input else {
                return Err(Error::new_spanned(input, "a tool is a free function"));
            };
            let Pat::Ident(name) = &mut **pat else {
                return Err(Error::new_spanned(
                    pat,
                    "name the parameter; the model fills it by name",
                ));
            };
            parameters.bound.push(name.ident.clone());
            let attributes = std::mem::take(attrs);
            if is_context(ty) {
                parameters.arguments.push(quote!(context));
                continue;
            }
            if let Some(state) = find_state(ty) {
                if parameters.state.is_some() {
                    let why = "a tool takes one state: put what it needs into one type";
                    return Err(Error::new_spanned(ty, why));
                }
                parameters.state = Some(state.clone());
                parameters.arguments.push(quote!(<#ty>::from_context(context)?));
                continue;
            }
            if let Type::Reference(_) = &**ty {
                return Err(Error::new_spanned(ty, "take the argument by value, such as `String`"));
            }
            let name = &name.ident;
            parameters.fields.push(quote!(#(#attributes)* #name: #ty));
            parameters.names.push(name.to_token_stream());
            parameters.arguments.push(name.to_token_stream());
        }
        Ok(parameters)
    }
}

fn is_context(ty: &Type) -> bool {
    let Type::Reference(reference) = ty else { return false };
    let Type::Path(path) = &*reference.elem else { return false };
    path.path.segments.last().is_some_and(|segment| segment.ident == "ToolContext")
}

/// Returns `T` of a parameter of type `State<T>`.
fn find_state(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|segment| segment.ident == "State")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(state)) if arguments.args.len() == 1 => Some(state),
        _ => None,
    }
}

fn doc_text(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: T1. The error of a refused function has the text to write.
    #[test]
    fn refused_function_says_what_to_write() {
        let ok = quote!(
            /** Adds. */
            async fn add(x: i64) -> Result<i64, ToolError> {
                Ok(x)
            }
        );
        let alias = quote!(
            /** Adds. */
            async fn add(x: i64) -> io::Answer {
                Ok(x)
            }
        );
        for (options, function, why) in [
            (quote!(), ok.clone(), None),
            (quote!(), alias, None),
            (quote!(timeout = 5), ok, Some("expected a duration such as")),
            (
                quote!(),
                quote!(
                    /** Adds. */
                    async fn add(x: i64) -> Vec<i64> {
                        vec![x]
                    }
                ),
                Some("a tool returns a `Result`, such as"),
            ),
            (
                quote!(),
                quote!(
                    /** Adds. */
                    async fn add() {}
                ),
                Some("a tool returns a `Result`"),
            ),
            (
                quote!(),
                quote!(
                    async fn add() -> Result<(), E> {}
                ),
                Some("a tool needs a doc comment"),
            ),
            (
                quote!(),
                quote!(
                    /** Adds. */
                    fn add() -> Result<(), E> {}
                ),
                Some("is an `async fn`"),
            ),
        ] {
            let written = expand(options, function, &quote!(backstop)).to_string();
            assert_eq!(written.contains("compile_error"), why.is_some(), "{written}");
            assert!(written.contains(why.unwrap_or_default()), "{written}");
        }
    }

    #[test]
    fn options_given_twice_are_refused() {
        for (options, why) in [
            (quote!(approval(approvers = ["lead"]), approval), "`approval` is given twice"),
            (quote!(capabilities("a:b"), capabilities("c:d")), "`capabilities` is given twice"),
            (quote!(timeout = "5s", timeout = "50m"), "`timeout` is given twice"),
            (quote!(idempotent, idempotent), "`idempotent` is given twice"),
            (quote!(approval(approvers = ["a"], approvers = ["b"])), "`approvers` is given twice"),
            (quote!(once = "argscents"), "expected an argument"),
            (quote!(once = "args."), "expected an argument"),
        ] {
            let function = quote!(
                /** Pays. */
                async fn pay(cents: i64) -> Result<i64, ToolError> {
                    Ok(cents)
                }
            );
            let written = expand(options, function, &quote!(backstop)).to_string();
            assert!(written.contains("compile_error") && written.contains(why), "{written}");
        }
    }
}
